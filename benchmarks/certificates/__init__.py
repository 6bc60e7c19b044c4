"""Checks the certificates of `certified` on small random fleets against a brute-force search of the certified space."""
