"""What all launch targets share: hosts in order, their NCCL environment, the network of each group, and the shim
(`holmes_launch.py`) that gives each process its rank in the plan. The exporters use these modules."""
