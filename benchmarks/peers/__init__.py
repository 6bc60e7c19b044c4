"""Plans evaluated under the cost models of other planners (peers): `python -m benchmarks peers`.

Each module implements the cost model of one peer, by the formula in its docstring, and a search of plans under that model. The
cases are the topologies in `topologies/peers/`; published numbers of the peers are given with their source.
"""
