"""Reasons why a layout is slower or does not fit memory, and remedies."""
