"""The machines: devices, links, nodes, clusters, the fleet, and the share of their rates that a software stack reaches."""
