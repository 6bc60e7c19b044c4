"""What is trained: the shape of the model, its FLOPs and parameters, the batch and the precision."""
