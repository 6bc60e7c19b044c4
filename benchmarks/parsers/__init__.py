"""Whether a target's own parser takes what its exporter takes: `python -m benchmarks parsers --megatron FOLDER ...`.

Random plans (`draws`), each of a few properties beyond plain ones, are asked of an exporter, and written for its target whether
it takes them or not. The target's own parser and checks, run by `reading` in a process of its own from a checkout or an
installation of the target, read what was written. `law` compares the two answers and prints a table.
"""
