"""Seconds and bytes of one rank's work: kernels, memory, and the lowering of stages to kernels and collectives."""
