"""What-if studies: one topology, a grid or a list of changes to it, a plan for each."""
