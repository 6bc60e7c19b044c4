"""Seconds and bytes of one rank's work: kernels, layers, memory, payloads, and the lowering of a plan to programs."""
