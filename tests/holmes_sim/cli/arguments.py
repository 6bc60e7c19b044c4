"""Arguments of the command line that several tests share."""

from __future__ import annotations

from holmes_sim.cli import commands as cli_commands

PINNED = ("--tp", "2", "--pp", "2", "--dp", "8", "--microbatch-size", "4", "--recompute", "none", "--cp", "1")
"""Degrees that leave one layout, so that planning takes a fraction of a second."""
HYBRID = ("plan", "holmes-hybrid-4", *PINNED, "--schedule", "1f1b", "--for", "none")
"""Without a target: else a plan that no framework runs would be searched beside it, too."""
KINDS = (
    "devices", "links", "nics", "models", "profiles", "stacks", "topologies", "studies",
    "strategies", "schedules", "collectives", "sync", "compressions", "aggregations", "targets",
)  # fmt: skip
COMMANDS = tuple(command.NAME for command in cli_commands.in_order())
