"""Readers and writers of files, with line numbers in their errors: topologies, plans, profiles, the catalogue."""
