"""Requests for models whose layers differ, for tests of the planner."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Request, Wishes
from planner.space import stand_in
from planner.space.shape import Shape
from planner.space.shapes import searched, variants
from tests import builders as make
from tests.planner.builders import request

CHEAP_FIRST = {"experts": 2, "experts_per_token": 1, "ffn_hidden": 384, "dense_layers": 4, "dense_ffn_hidden": 24}
"""Four first layers with an MLP of a sixteenth of the others' width."""
PINNED = Wishes(tp=1, pp=2, dp=1, ep=1, microbatch_size=1, recompute="none", schedule="1f1b", zero_stage=1)
"""Pins that leave the split of the layers alone."""


def question(wishes: Wishes = PINNED, layers: int = 8, batch: int = 8, **facts: object) -> Request:
    """Two devices with slow products, and a model of cheap and of expensive layers."""
    machines = make.fleet(make.cluster("a", nodes=2, devices=1, spec=make.device(speed=1e10)))
    return request(machines, make.model(layers, **(CHEAP_FIRST | facts)), batch, wishes)


def only_shape(wanted: Request) -> Shape:
    """The only variant of the only shape of a pinned request."""
    (part,) = stand_in.stand_ins(wanted)
    (base,) = searched(part)
    return next(variants(part, base))


def interleaved(vpp: int) -> Wishes:
    """The pins with virtual stages."""
    return replace(PINNED, schedule="interleaved", vpp=vpp)
