"""Judges the certificates of `certified`: small drawn fleets, each planned and brute-forced over the stated space."""
