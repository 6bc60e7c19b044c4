"""What it is trained on: devices, nodes, NICs, clusters, the fleet, and the share of their rates that software reaches."""
