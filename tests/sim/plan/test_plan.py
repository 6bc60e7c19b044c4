"""A plan checks itself when it is made, and numbers its ranks as Megatron-LM does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.errors import NotModelled
from sim.hardware.cluster import Device
from sim.plan import schedules
from sim.plan.derived_groups import embedding_groups
from sim.plan.groups import Group, group_ranks
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan, Stage
from tests import builders
from tests.builders import cluster, fleet
from tests.sim.plan.pair_of_nodes import plan_of_a_file, refused


@pytest.fixture
def plan() -> Plan:
    """tp 2, pp 2, dp 2 on two nodes of four devices; four layers, four samples."""
    return builders.plan(fleet(cluster(nodes=2, devices=4)), tp=2, pp=2, dp=2, microbatches=2)


@pytest.fixture
def read(tmp_path: Path) -> Plan:
    """A plan on a topology that was read from a file."""
    return plan_of_a_file(tmp_path)


# numbering


def test_ranks_are_numbered_tp_first_then_dp_then_pp() -> None:
    """Megatron-LM's default order tp-cp-ep-dp-pp: its documentation's example of 16 GPUs, cut to 8."""
    assert list(group_ranks(ParallelConfig(tp=2, pp=2, dp=2, num_microbatches=(1, 1)))) == [
        ("tp", (0, 1)),
        ("tp", (2, 3)),
        ("dp", (0, 2)),
        ("dp", (1, 3)),
        ("tp", (4, 5)),
        ("tp", (6, 7)),
        ("dp", (4, 6)),
        ("dp", (5, 7)),
        ("pp", (0, 4)),
        ("pp", (1, 5)),
        ("pp", (2, 6)),
        ("pp", (3, 7)),
    ]


def test_the_sixteen_gpus_of_megatrons_docstring() -> None:
    """megatron/core/parallel_state.py, initialize_model_parallel: tp 2, pp 4, hence dp 2."""
    found = list(group_ranks(ParallelConfig(tp=2, pp=4, dp=2, num_microbatches=(1, 1))))
    by_kind = {kind: sorted(ranks for of, ranks in found if of == kind) for kind in ("dp", "tp", "pp")}
    assert by_kind == {
        "dp": [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)],
        "tp": [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)],
        "pp": [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)],
    }


def test_place_and_rank_are_inverse() -> None:
    config = ParallelConfig(tp=2, pp=3, dp=4, num_microbatches=(1,) * 4)
    assert config.coordinates(13) == (1, 2, 1)
    assert [config.rank(*config.coordinates(rank)) for rank in range(24)] == list(range(24))


def test_a_degree_of_one_has_no_groups() -> None:
    assert list(group_ranks(ParallelConfig())) == []


def test_every_group_gets_the_best_nic_that_its_members_share(read: Plan) -> None:
    """Pipelines cross from InfiniBand to RoCE, so they talk TCP; tp and dp stay in their node."""
    assert {(group.kind, group.nic, group.transport) for group in read.groups} == {
        ("tp", "intra_node", "intra_node"),
        ("dp", "intra_node", "intra_node"),
        ("pp", "ethernet", "tcp"),
    }


def test_a_pipeline_rank_of_an_interleaved_pipeline_holds_every_ppth_stage() -> None:
    plan = builders.plan(fleet(cluster(nodes=2)), pp=2, vpp=3, microbatches=2, schedule="interleaved")
    assert [plan.stages_of(pp_rank) for pp_rank in (0, 1)] == [(0, 2, 4), (1, 3, 5)]


def test_hosts_lists_ranks_node_by_node(plan: Plan) -> None:
    assert plan.hosts((0, 4, 1, 5)) == ((0, 1), (4, 5))


# what a config refuses


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tp": 0}, "tp must be at least 1, not 0"),
        ({"microbatch_size": -1}, "microbatch_size must be at least 1, not -1"),
        ({"recompute": "some"}, "recompute 'some' is unknown; known: none, selective, full"),
        ({"attention": "ring"}, "attention 'ring' is unknown; known: flash, unfused"),
        ({"gradient_precision": "fp8"}, "gradient_precision 'fp8' is unknown; known: fp32, bf16, fp16"),
        ({"dp": 2}, "num_microbatches has 1 numbers; dp 2 needs one for each replica"),
        ({"dp": 2, "num_microbatches": (4, 0)}, "every replica needs at least one microbatch"),
        ({"vpp": 2}, "schedule 1f1b has one stage per rank; vpp 2 needs schedule interleaved"),
        (
            {"recompute_modules": ("layernorm", "moe_act")},
            "recompute_modules layernorm, moe_act needs recompute selective, not none",
        ),
        (
            {"recompute": "selective", "recompute_modules": ("norm",)},
            "recompute_modules 'norm' is unknown; known: core_attn, layernorm, mlp, moe_act, moe, mla_up_proj",
        ),
        ({"recompute_layers": (1,)}, "recompute_layers 1 needs recompute full, not none"),
        (
            {"recompute": "full", "recompute_layers": (1, 2)},
            "recompute_layers has 2 numbers; one, or one for each of 1 stages",
        ),
        ({"recompute": "full", "recompute_layers": (-1,)}, "recompute_layers -1: a number of layers is not negative"),
        ({"schedule": "1f2b"}, f"schedule '1f2b' is unknown; known: {', '.join(schedules.names())}"),
    ],
)
def test_a_config_that_cannot_be_is_refused(degrees: dict[str, Any], message: str) -> None:
    assert refused(lambda: ParallelConfig(**degrees)) == message


# what a plan refuses


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((Stage(0, 4),), "stages: 1 given, pp 2 x vpp 1 needs 2"),
        ((Stage(0, 2), Stage(2, 3)), "stages: they have 3 layers, but model tiny has 4"),
        ((Stage(0, 2), Stage(3, 4)), "stages[1].layers: [3, 4] must start at 2"),
        ((Stage(0, 2), Stage(1, 4)), "stages[1].layers: [1, 4] must start at 2"),
        ((Stage(1, 2), Stage(2, 4)), "stages[0].layers: [1, 2] must start at 0"),
    ],
)
def test_stages_cover_every_layer_once(plan: Plan, stages: tuple[Stage, ...], message: str) -> None:
    assert refused(lambda: replace(plan, stages=stages)) == message


@pytest.mark.parametrize("layers", [(0, 4, 4), (4, 4, 0)])
def test_the_first_or_the_last_stage_may_hold_the_embedding_or_the_head_alone(layers: tuple[int, ...]) -> None:
    found = builders.plan(fleet(cluster(devices=3)), pp=3, layers=layers)
    assert tuple(stage.layers for stage in found.stages) == layers


def test_a_stage_before_the_head_may_pass_messages_on() -> None:
    found = builders.plan(fleet(cluster(devices=4)), pp=4, layers=(4, 0, 4, 0), head=3)
    assert [found.passes_on(stage) for stage in range(4)] == [False, True, False, False]
    behind = builders.plan(fleet(cluster(devices=4)), pp=4, layers=(8, 0, 0, 0), head=2)
    assert [behind.passes_on(stage) for stage in range(4)] == [False, True, False, False], "nothing passes behind the head"


@pytest.mark.parametrize(("facts", "option"), [
    ({"pp": 2, "vpp": 2, "layers": (4, 0, 4, 4), "schedule": "interleaved", "microbatches": 2}, "vpp 2"),
    ({"pp": 2, "dp": 2, "layers": (4, 0, 4), "zero_stage": 3} | {"pp": 3}, "zero_stage 3"),
])  # fmt: skip
def test_stages_that_pass_messages_on_have_limits(facts: dict[str, Any], option: str) -> None:
    with pytest.raises(NotModelled) as caught:
        builders.plan(fleet(cluster(nodes=2, devices=4)), **facts)
    assert str(caught.value) == f"stages[1].layers: a stage that only passes messages on is not modelled with {option}"


@pytest.mark.parametrize(("layers", "head"), [((4, 4, 0), 1), ((4, 0, 0), 1), ((0, 4, 0), 1), ((4, 4, 0), 2)])
def test_a_stage_that_has_the_head_needs_no_layers_and_neither_do_those_after_it(layers: tuple[int, ...], head: int) -> None:
    found = builders.plan(fleet(cluster(devices=3)), pp=3, layers=layers, head=head)
    assert [found.ends((stage,)) for stage in range(3)] == [(stage == 0, stage == head) for stage in range(3)]


@pytest.mark.parametrize(
    ("layers", "head", "config", "message"),
    [
        ((4, 4, 4), 1, {}, "stages[1].head: the head follows all 12 layers; this stage ends with layer 8"),
        ((4, 0, 0), 0, {}, "stages[0].head: the first stage has the embedding; a later stage has the head"),
        (
            (4, 4, 4, 0, 0, 0),
            3,
            {"vpp": 2, "schedule": "interleaved", "microbatches": 3},
            "stages[3].head: a head that is not on the last stage is not modelled with vpp 2",
        ),
        (
            (4, 4, 0),
            1,
            {"dp": 2, "zero_stage": 3},
            "stages[1].head: a head that is not on the last stage is not modelled with zero_stage 3",
        ),
    ],
)
def test_the_head_follows_all_layers(layers: tuple[int, ...], head: int, config: dict[str, Any], message: str) -> None:
    machines = fleet(cluster(devices=6))
    assert refused(lambda: builders.plan(machines, pp=3, layers=layers, head=head, **config)) == message


def test_one_stage_has_the_head() -> None:
    found = builders.plan(fleet(cluster(devices=3)), pp=3, layers=(4, 4, 0), head=1)
    twice = (*found.stages[:2], replace(found.stages[2], head=True))
    assert refused(lambda: replace(found, stages=twice)) == "stages[2].head: stages[1] has the head, and one stage has it"


def test_the_first_rank_shares_a_tied_embedding_with_the_rank_of_the_head() -> None:
    found = builders.plan(fleet(cluster(devices=8)), tp=2, pp=4, layers=(4, 4, 0, 0), head=2)
    assert [group.ranks for group in embedding_groups(found, found.groups)] == [(0, 4), (1, 5)]


def test_the_microbatches_of_all_replicas_make_the_global_batch(plan: Plan) -> None:
    config = replace(plan.config, num_microbatches=(2, 3))
    assert (
        refused(lambda: replace(plan, config=config)) == "config: 5 microbatches of 1 are 5 samples, but global_batch_size is 4"
    )


def test_tp_divides_heads() -> None:
    machines = fleet(cluster(devices=5))
    assert refused(lambda: builders.plan(machines, tp=5)) == "config.tp: 5 does not divide heads 24"


def test_a_device_has_one_rank(plan: Plan) -> None:
    twice = (*plan.placement[:7], plan.placement[2])
    assert refused(lambda: replace(plan, placement=twice)) == "placement[7]: c/node0/dev2 is already the device of rank 2"


def test_every_rank_has_a_device(plan: Plan) -> None:
    assert (
        refused(lambda: replace(plan, placement=plan.placement[:7]))
        == "placement: 7 devices for 8 ranks; one for each is needed"
    )


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (Device("d", 0, 0), "cluster 'd' is not in topology tiny; it has c"),
        (Device("c", 2, 0), "device c/node2/dev0 does not exist: cluster c has 2 nodes of 4 devices"),
        (Device("c", 0, 4), "device c/node0/dev4 does not exist: cluster c has 2 nodes of 4 devices"),
    ],
)
def test_a_device_exists(plan: Plan, device: Device, message: str) -> None:
    assert refused(lambda: replace(plan, placement=(*plan.placement[:7], device))) == message


def test_a_device_has_the_precision_of_the_workload() -> None:
    machines = fleet(cluster())
    assert refused(lambda: builders.plan(machines, precision="fp8")) == "device ideal has no fp8 peak; it has bf16, fp16, fp32"


def test_no_group_is_missing(plan: Plan) -> None:
    assert refused(lambda: replace(plan, groups=plan.groups[:-1])) == "groups: the pp group of ranks [3, 7] is missing"


def test_no_group_is_invented(plan: Plan) -> None:
    odd = Group("tp", (0, 7), "infiniband", "rdma", "ring")
    message = "groups: tp group of ranks [0, 7] does not follow from the degrees"
    assert refused(lambda: replace(plan, groups=(*plan.groups, odd))) == message


def test_a_collective_is_known(plan: Plan) -> None:
    groups = (replace(plan.groups[0], collective="star"), *plan.groups[1:])
    assert refused(lambda: replace(plan, groups=groups)).startswith("collective 'star' is unknown; known: ")


def test_rdma_needs_the_nic_at_every_member(read: Plan) -> None:
    groups = (*read.groups[:-1], replace(read.groups[-1], nic="infiniband", transport="rdma"))
    message = "groups[11].nic: infiniband is not a NIC of roce/node0/dev3 (rank 7)"
    assert refused(lambda: replace(read, groups=groups)) == message


def test_a_pipeline_rank_recomputes_what_its_virtual_stages_have() -> None:
    """Virtual stages 0 to 3 have 3, 1, 2 and 4 layers and recompute 1, 2, 2 and 3 of them at most."""
    facts = {"vpp": 2, "schedule": "interleaved", "microbatches": 2, "recompute": "full"}
    found = builders.plan(fleet(cluster(devices=2)), pp=2, layers=(3, 1, 2, 4), recompute_layers=(1, 2, 2, 3), **facts)
    assert [found.config_of((stage,)).recompute_layers for stage in range(4)] == [(1,), (1,), (2,), (3,)]
    assert [found.config_of(found.stages_of(rank)).recompute_layers for rank in (0, 1)] == [(3,), (4,)]
    same = replace(found, config=replace(found.config, recompute_layers=(2,)))
    assert [same.config_of((stage,)).recompute_layers for stage in range(4)] == [(2,), (1,), (2,), (2,)]


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        ("moe", {}, "config.recompute_modules: moe needs experts, which tiny has not"),
        ("moe_act", {}, "config.recompute_modules: moe_act needs experts, which tiny has not"),
        (
            "mlp",
            {"experts": 4, "experts_per_token": 2},
            "config.recompute_modules: mlp is for layers without experts; tiny has experts: moe",
        ),
    ],
)
def test_modules_that_a_model_has_not_are_refused(module: str, shape: dict[str, Any], message: str) -> None:
    facts = {"recompute": "selective", "recompute_modules": (module,)}
    assert refused(lambda: builders.plan(fleet(cluster()), shape=shape, **facts)) == message
