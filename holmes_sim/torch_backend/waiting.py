"""How long ranks wait for collectives and messages."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

COLLECTIVE_TIMEOUT = 1800.0
"""Seconds after which a collective or message fails. A guess: longer than any step that is measured."""


def finish(work: dist.Work) -> None:
    """Wait for a message of a gloo group.

    Gloo's messages else have the timeout with which the group was made (`ProcessGroupGloo::RecvWork::wait` of torch 2.13), that
    for connecting: a rank may wait longer for the first backward of a long or slowed pipeline."""
    work.wait(timedelta(seconds=COLLECTIVE_TIMEOUT))
