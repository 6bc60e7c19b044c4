"""Readers and writers of files, with line numbers in errors: topologies, plans, profiles, catalogue, Hugging Face configs."""
