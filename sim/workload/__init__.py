"""What is trained: model shape, kernels, FLOPs and parameters, batch size and precision."""
