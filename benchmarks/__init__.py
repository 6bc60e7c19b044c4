"""How fast holmes-sim is: `python -m benchmarks` prints a table. Speeds are compared in one run, on one machine."""
