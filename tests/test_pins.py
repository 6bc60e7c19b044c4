"""A pin only makes the space smaller, so it gives no faster plan."""

from __future__ import annotations

from benchmarks import pins


def test_no_pin_gives_a_faster_plan():
    found = list(pins.measure(fleets=2, pins=3))
    assert len(found) >= 4
    assert max(one.faster for one in found) <= pins.SLACK


def test_what_is_pinned_already_stays_pinned():
    for seed in range(5):
        question = pins.draw(seed)
        wishes = pins.pinned(question, pins.random.Random(seed))
        given = {key: value for key in wishes.__slots__ if (value := getattr(question.wishes, key)) is not None}
        assert {key: getattr(wishes, key) for key in given} == given
        assert wishes != question.wishes
