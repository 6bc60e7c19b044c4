"""Memory of each set of ranks: attention ranks hold no experts, and expert ranks nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disaggregation import memory, shares
from sim.disaggregation.memory import attention_rank_bytes, expert_rank_bytes, fits
from sim.hardware.memory_facts import MEGATRON
from sim.kernels.communicators import CONTEXT
from tests.sim.disaggregation.builders import machines, stage

EXPERT = 3 * 96 * 192
"""Parameters of an expert."""


def test_an_expert_rank_by_hand():
    """Eight experts in each of two layers at 18 bytes a parameter; kept of a row: its input, gate and up, and the product of
    both, at 2 bytes, for 64 rows, two layers and two microbatches."""
    kept = 2 * 2 * 64 * (96 + 2 * 192 + 192) * 2
    assert expert_rank_bytes(stage()) == pytest.approx(CONTEXT + MEGATRON.workspace + 16 * EXPERT * 18 + kept)


def test_an_expert_rank_that_recomputes_keeps_its_rows():
    rows, layer = 2 * 2 * 64 * 96 * 2, 64 * (96 + 2 * 192 + 192) * 2
    assert expert_rank_bytes(stage(recompute="full")) == pytest.approx(
        CONTEXT + MEGATRON.workspace + 16 * EXPERT * 18 + rows + layer
    )


def test_an_attention_rank_has_no_experts_but_those_it_keeps():
    """Four ranks share the optimizer state of what all hold (ZeRO 1); a kept expert is on one rank of a group, 18 bytes."""
    none, some = (stage(machines(4, 2), batch=8, kept=kept) for kept in ((0, 0), (0, 4)))
    more = attention_rank_bytes(some) - attention_rank_bytes(none)
    rows = 2 * 64 * 4 / 8 * (96 + 2 * 192 + 192) * 2
    assert more == pytest.approx(EXPERT * 18 + rows)
    state = shares.dense_parameters(none) * (2 + 4 + 12 / 4)
    assert attention_rank_bytes(none) > CONTEXT + state


def test_experts_leave_expert_ranks():
    none, some = (expert_rank_bytes(stage(machines(4, 2), batch=8, kept=kept)) for kept in ((0, 0), (4, 4)))
    assert none - some > 4 * EXPERT * 18


def test_it_fits_where_both_sets_fit(monkeypatch):
    whole = stage()
    assert fits(whole)
    for name in ("attention_rank_bytes", "expert_rank_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(memory, name, lambda stage: 80e9 + 1)
            assert not fits(whole)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "expert_rank_bytes", lambda stage: 75e9)
        assert fits(whole)
        assert not fits(replace(whole, topology=replace(whole.topology, memory_headroom=0.08)))
