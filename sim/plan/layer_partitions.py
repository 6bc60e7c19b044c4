"""Rules by which software divides layers among pipeline stages, where nobody says which stage has which: name -> rule.

transformer-only     by the layers alone. If they are not a multiple of the stages, all stages have the rounded-up share and the
                     last ones what is left (DeepSpeed's partition_method "type:transformer"; Megatron-LM refuses such a number)
embedding-as-layer   embedding and loss count as one layer each (Megatron-LM's --account-for-embedding-in-pipeline-split and
                     --account-for-loss-in-pipeline-split)
fuller-middle        the later stages have one layer more where the layers are no multiple of the stages. If they are, in
                     pipelines of four stages and more, they are divided as if there were as many more as there are stages but
                     one (or layers of a stage, if these are fewer), which the last stage then lacks: "to make the middle stages
                     contain more layers" (LiBai: Oneflow-Inc/libai 9fc504c libai/utils/distributed.py, _init_placement_group)

A rule takes layers and stages, and gives the first layer of each stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sim.errors import PlanError
from sim.plan.plan import Stage

Rule = Callable[[int, int], list[int]]
FULLER_STAGES, FULLER_LAYERS = 4, 8
"""From so many stages and layers on LiBai makes the middle stages fuller (the condition in `_init_placement_group`)."""


def divided(partition: str, layers: int, stages: int) -> tuple[Stage, ...]:
    """The stages of a pipeline by a rule of `PARTITIONS`; raises PlanError for another name."""
    if partition not in PARTITIONS:
        raise PlanError(f"layer_partition {partition!r} is unknown; known: {', '.join(PARTITIONS)}")
    cuts = [*PARTITIONS[partition](layers, stages), layers]
    return tuple(Stage(first, past) for first, past in itertools.pairwise(cuts))


def _by_layers(layers: int, stages: int) -> list[int]:
    share = -(-layers // stages)
    return [min(index * share, layers - (stages - index)) for index in range(stages)]


def _with_ends(layers: int, stages: int) -> list[int]:
    return [0, *((layers + 2) * index // stages - 1 for index in range(1, stages))]


def _fuller_middle(layers: int, stages: int) -> list[int]:
    fuller = stages >= FULLER_STAGES and layers >= FULLER_LAYERS and layers % stages == 0
    share, more = divmod(layers + min(stages - 1, layers // stages) * fuller, stages)
    return [index * share + max(index - (stages - more), 0) for index in range(stages)]


PARTITIONS: dict[str, Rule] = {
    "transformer-only": _by_layers,
    "embedding-as-layer": _with_ends,
    "fuller-middle": _fuller_middle,
}
"""Name of a rule -> first layer of each stage by layers and stages."""
