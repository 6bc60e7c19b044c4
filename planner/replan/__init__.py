"""A new plan after devices were lost, and what moves to get there."""
