"""Outer periods of plans of islands: what islands exchange over which links, and how long a period takes.

The inner step of an island is that of its plan, simulated by `sim.engine`. `parameter_shares` says which rank sends which part
of the parameters, `exchange` what an exchange loads and takes, `outer_period` simulates the inner steps, exchanges and outer
updates of all islands by discrete events, and `token_worth` says what a token of such training is worth."""
