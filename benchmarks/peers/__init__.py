"""This project's plans judged by the models of other planners: `python -m benchmarks peers`.

Each file holds one peer's judge, coded from the formula that its docstring states, and a search of plans that the judge rates.
The cases are the topologies under `topologies/peers/`; figures of the peers stand beside ours with their source.
"""
