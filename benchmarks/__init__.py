"""Speed, measured on the machine at hand: one file, one thing to measure, with `measure()`."""
