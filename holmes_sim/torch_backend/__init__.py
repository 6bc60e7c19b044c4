"""Executes a plan with torch.distributed and measures it.

Each rank builds the process groups of the plan and its stages of a GPT with the plan's shape, and executes the same program
that the simulator executes. Every action is timed; the result is a measured `Timeline`.

torch's own pipelining runtime (torch.distributed.pipelining) also executes lists of actions. It is not used for three reasons:
its actions cannot be split at gradient buckets, its messages use the pipeline's default group, and it does not report the time
of an action, so that measured and simulated actions could not be compared one by one.
"""
