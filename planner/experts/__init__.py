"""Assignment of routed experts, and of their replicas, to the ranks of an ep group."""
