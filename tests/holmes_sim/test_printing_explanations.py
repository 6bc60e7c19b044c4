"""The line that says what kinds of communication are."""

from __future__ import annotations

from holmes_sim.printing.explanations import COMMUNICATION, legend
from sim.results.explain import KINDS


def test_the_kinds_that_occur_are_named():
    assert legend((("forward", 1.0), ("ep", 0.5), ("pp", 0.1), ("bubble", 0.1))) == (
        "Communication that no compute hides: ep (tokens to experts and back), pp (messages between stages). "
        "bubble: waiting for other ranks."
    )
    assert legend((("forward", 1.0),)) == "bubble: waiting for other ranks."


def test_every_kind_of_communication_has_words():
    assert set(KINDS) - set(COMMUNICATION) == {"forward", "backward", "recompute", "offload", "optimizer", "bubble"}
