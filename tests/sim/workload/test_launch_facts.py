"""Facts of a model that only launches need: what is wrong is refused, and what is not known is not said."""

from __future__ import annotations

import pytest

from sim.workload.launch_facts import LaunchFacts


def test_only_known_facts_are_said() -> None:
    assert LaunchFacts(rope_theta=500000.0, qk_norm=False).known() == {"rope_theta": 500000.0, "qk_norm": False}


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"rope_theta": 0.0}, "rope_theta must be above 0, not 0"),
        ({"rope_scaling": "ntk"}, "rope_scaling 'ntk' is unknown; known: none, llama3, yarn"),
        ({"rope_scaling": "yarn"}, "rope_scaling yarn needs rope_factor, such as 8"),
        ({"rope_factor": 8.0}, "rope_factor 8 needs rope_scaling, llama3 or yarn"),
        ({"rotary_fraction": 1.5}, "rotary_fraction 1.5 must be at most 1"),
    ],
)
def test_wrong_facts_are_refused(facts: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        LaunchFacts(**facts)
