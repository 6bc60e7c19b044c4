"""What every launch needs, whatever starts it: hosts in order, their NCCL environment, the network of each group, and the
shim that makes a process the rank that the plan says. The exporters stand on it."""
