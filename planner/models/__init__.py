"""Mathematical programmes, and the one door to the solver."""
