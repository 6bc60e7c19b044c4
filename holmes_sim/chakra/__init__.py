"""Execution traces in MLCommons Chakra's form: the programs that the engine plays, as graphs of nodes, one file a rank."""
