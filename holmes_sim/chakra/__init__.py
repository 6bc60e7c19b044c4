"""Execution traces of MLCommons Chakra: the programs that the engine simulates, as graphs of nodes, one file per rank."""
