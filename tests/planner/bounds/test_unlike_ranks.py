"""What a rank of a pipeline implies for its step, where layers differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.bounds.rank_states import contents
from planner.bounds.unlike_ranks import Messages, Place, RankBounds, Ranks
from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_layers import UnlikeCosts
from tests.planner.bounds.test_unlike_lengths import simulated
from tests.planner.unlike import only_shape, question

WANTED = question()
KINDS = contents(Layers(WANTED.workload), 1)
NO_MESSAGES = Messages(0.0, 0.0, 0.0, 0.0, 0.0)


def bounds() -> RankBounds:
    context, shape = PlanningContext(WANTED), only_shape(WANTED)
    classes = UnlikeCosts(context).classes(shape)
    return RankBounds(WANTED, shape, classes, KINDS, math.inf)


def of_rank(of: RankBounds, behind: int, own: int, s: int, messages: Messages = NO_MESSAGES) -> float:
    """The bound of a rank of two with so many layers behind it and on it; s: ranks behind it."""
    cheap = min(max(behind + own - 4, 0), 4) - max(behind - 4, 0)
    content = KINDS[own].index((cheap, own - cheap))
    ranks = Ranks(*(np.array([number]) for number in (behind, own, content)))
    place = Place(0, s, 2, (0,), (0,), (0,), messages)
    return float(of.table(place, ranks)[0])


def test_each_rank_bounds_the_steps_of_its_pipelines() -> None:
    of, nearest = bounds(), 0.0
    for first in range(1, 8):
        seconds = simulated(WANTED, (("a", first), ("a", 8 - first)))
        both = of_rank(of, 8 - first, first, 1), of_rank(of, 0, 8 - first, 0)
        assert max(both) <= seconds * (1 + 1e-9)
        nearest = max(nearest, max(both) / seconds)
    assert nearest > 0.95


def test_a_rank_without_layers_or_with_a_neighbour_that_cannot_be_has_no_bound() -> None:
    of = bounds()
    assert of_rank(of, 4, 4, 1) < math.inf
    assert of_rank(of, 4, 4, 1, NO_MESSAGES._replace(ahead=math.inf)) == math.inf
    assert of_rank(of, 4, 3, 1) == math.inf, "the first rank has all layers that are not behind it"


def test_a_rank_waits_for_the_messages_of_all_microbatches() -> None:
    """Eight, of a second; the first one arrives after one."""
    of = bounds()
    assert of_rank(of, 4, 4, 1, NO_MESSAGES._replace(ahead=1.0)) == pytest.approx(of_rank(of, 4, 4, 1) + 8.0)
    assert of_rank(of, 0, 4, 0, NO_MESSAGES._replace(back=1.0)) == pytest.approx(of_rank(of, 0, 4, 0) + 9.0)
