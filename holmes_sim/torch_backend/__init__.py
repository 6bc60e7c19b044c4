"""Executes a plan with torch.distributed: each rank builds the groups that the plan lists, its stages of a GPT of the plan's
shape, and plays the program that the simulator plays; every action is timed, and what happened is a Timeline.

torch's own pipelining runtime (torch.distributed.pipelining) plays lists of actions too. It is not used, because its actions
cannot be cut at gradient buckets, its messages take the pipeline's default group, and it tells no time of an action: a
measured step could not be held against the simulated one action by action.
"""
