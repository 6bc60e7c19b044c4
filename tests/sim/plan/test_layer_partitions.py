"""How software divides layers among stages where nobody says which stage has which."""

from __future__ import annotations

import itertools

import pytest

from sim.errors import PlanError
from sim.plan.layer_partitions import PARTITIONS, divided


def sizes(partition: str, layers: int, stages: int) -> list[int]:
    return [stage.layers for stage in divided(partition, layers, stages)]


@pytest.mark.parametrize(
    ("layers", "stages", "found"),
    [
        (24, 4, [6, 7, 7, 4]),  # 24 and 3 more are 6, 7, 7 and 7
        (48, 8, [6, 6, 7, 7, 7, 7, 7, 1]),  # 48 and 6 more: not more than a stage has
        (24, 8, [3, 3, 3, 3, 3, 4, 4, 1]),
        (24, 2, [12, 12]),  # fewer than four stages
        (24, 5, [4, 5, 5, 5, 5]),  # no multiple: the later stages have more
        (4, 4, [1, 1, 1, 1]),  # fewer than eight layers
    ],
)
def test_libai_gives_the_middle_stages_more_layers(layers: int, stages: int, found: list[int]) -> None:
    """Oneflow-Inc/libai 9fc504c, `_init_placement_group` of libai/utils/distributed.py, by hand."""
    assert sizes("fuller-middle", layers, stages) == found


def test_embedding_and_loss_count_as_a_layer_each() -> None:
    """BLOOM 176B: 70 layers on 12 stages with both ends counted are 5, ten times 6, and 5."""
    assert sizes("embedding-as-layer", 70, 12) == [5, *[6] * 10, 5]
    assert sizes("transformer-only", 78, 12) == [*[7] * 11, 1]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_layer_is_on_one_stage_and_every_stage_has_one(partition: str) -> None:
    for stages in range(1, 17):
        for layers in range(max(2 * stages, 8), 129):
            found = divided(partition, layers, stages)
            assert found[0].first == 0 and found[-1].past_last == layers
            assert all(one.past_last == following.first for one, following in itertools.pairwise(found))
            assert all(one.layers > 0 for one in found), (layers, stages)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(PlanError, match="'equal' is unknown; known: transformer-only, embedding-as-layer, fuller-middle"):
        divided("equal", 24, 4)
