"""Context and expert parallelism: who talks to whom, what is divided, what is conserved, what the engine makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.collectives import Transfer, rounds
from sim.engine.engine import simulate
from sim.engine.symmetry import fold, unfolded
from sim.errors import PlanError
from sim.formats import catalog, planfile
from sim.kernels import lowering, memory, payloads
from sim.kernels.compute import rank_kernels
from sim.kernels.formulas import attention_seconds
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import group_ranks
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.plan.program import text
from sim.workload.kernels import Attention, Gemm, LayerSharding, layer_kernels
from sim.workload.model import Model
from sim.workload.workload import Workload

Make = Callable[..., Plan]
EXPERTS = {"experts": 12, "experts_per_token": 2}


def of_kind(found: Iterator[tuple[str, tuple[int, ...]]], kind: str) -> list[tuple[int, ...]]:
    return [ranks for name, ranks in found if name == kind]


@pytest.fixture
def mixtral() -> Model:
    return catalog.model("mixtral-8x7b")


@pytest.fixture
def nodes(make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make) -> Callable[..., Plan]:
    """Plans on nodes of four ideal devices whose wires are a parameter of the test."""

    def of(bandwidth: float = 1e9, latency: float = 1e-6, count: int = 4, **facts: object) -> Plan:
        delays = {"latency": latency, "overhead": latency}
        node = {"nics": (make_nic(bandwidth=bandwidth, **delays),), "intra_node": make_wire(bandwidth=4 * bandwidth, **delays)}
        return make_plan(make_fleet(make_cluster(nodes=count, devices=4, **node)), **facts)

    return of


# ranks and groups


def test_ranks_are_numbered_tp_cp_dp_pp_and_ep_takes_them_from_cp_and_dp() -> None:
    """By hand after Megatron-LM's RankGenerator, order tp-cp-ep-dp-pp: rank = tp + 2 (cp + 2 (dp + 2 pp)) and
    rank = tp + 2 (ep + 2 (expert dp + 2 pp))."""
    config = ParallelConfig(tp=2, cp=2, ep=2, dp=2, pp=2, num_microbatches=(1, 1))
    assert config.world_size == 16
    assert of_kind(group_ranks(config), "tp") == [(r, r + 1) for r in range(0, 16, 2)]
    assert of_kind(group_ranks(config), "cp") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert of_kind(group_ranks(config), "ep") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert of_kind(group_ranks(config), "dp") == [(0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15)]
    assert of_kind(group_ranks(config), "pp") == [(r, r + 8) for r in range(8)]
    assert config.place(13) == (1, 2, 1), "tp 1, dp_cp 2 (cp 0 of replica 1), stage 1"
    assert config.rank(1, 2, 1) == 13


def test_expert_groups_may_span_cp_and_dp() -> None:
    config = ParallelConfig(cp=2, ep=4, dp=4, num_microbatches=(1,) * 4)
    assert of_kind(group_ranks(config), "cp") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert of_kind(group_ranks(config), "ep") == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert of_kind(group_ranks(config), "dp") == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_dense_gradients_are_reduced_over_dp_and_cp_those_of_experts_over_what_ep_leaves(nodes: Make) -> None:
    plan = nodes(tp=2, cp=2, ep=2, dp=2, pp=2, shape=EXPERTS)
    found = [(group.kind, group.ranks) for group in gradient_groups(plan)]
    assert [ranks for kind, ranks in found if kind == "dp"] == [(0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14), (9, 11, 13, 15)]
    assert [ranks for kind, ranks in found if kind == "edp"] == [
        (0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15),
    ]  # fmt: skip


def test_a_gradient_group_that_leaves_the_node_uses_its_nic_though_its_parts_do_not(nodes: Make) -> None:
    plan = nodes(cp=4, dp=2)
    assert {(group.nic, group.transport) for group in plan.groups if group.kind == "cp"} == {("intra_node", "intra_node")}
    assert [(group.nic, group.transport) for group in gradient_groups(plan)] == [("infiniband", "rdma")]


def test_without_cp_the_listed_groups_reduce_the_gradients(nodes: Make) -> None:
    plan = nodes(tp=2, dp=4)
    assert gradient_groups(plan) == tuple(group for group in plan.groups if group.kind == "dp")


def test_ranks_that_hold_all_of_their_experts_alone_reduce_none(nodes: Make) -> None:
    assert [group.kind for group in gradient_groups(nodes(dp=2, ep=2, shape=EXPERTS))] == ["dp"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"dp": 2, "ep": 4}, "ep 4 does not divide dp 2 x cp 1, from which it takes its ranks"),
        ({"dp": 2, "ep": 2}, "config.ep: 2 does not divide experts 0 of tiny"),
        ({"dp": 5, "ep": 5, "shape": EXPERTS}, "config.ep: 5 does not divide experts 12 of tiny"),
        ({"cp": 3}, "config.cp: seq_len 64 is not a multiple of 2 x cp 3"),
        (
            {"cp": 2, "attention": "unfused"},
            "cp 2 exchanges keys and values around a ring of fused attention; attention must be flash",
        ),
        (
            {"dp": 2, "ep": 2, "microbatches": (1, 2), "shape": EXPERTS},
            "config.ep: ranks that exchange tokens must have equally many microbatches",
        ),
    ],
)  # fmt: skip
def test_a_division_that_cannot_be_is_refused(nodes: Make, facts: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        nodes(**facts)
    assert str(caught.value) == message


def test_a_plan_file_holds_degrees_and_groups(nodes: Make) -> None:
    plan = nodes(tp=2, cp=2, ep=2, dp=2, pp=2, shape=EXPERTS | {"shared_ffn_hidden": 96})
    topology = {
        "format": "holmes-sim/topology/1", "name": "tiny", "links": [],
        "clusters": {"c": {"nodes": 4, "node": {
            "devices": {"type": "a100-sxm4-80gb", "count": 4}, "intra_node": "nvlink3",
            "nics": [{"type": "infiniband", "bandwidth": "200 Gbit/s"}],
        }}},
    }  # fmt: skip
    plan = replace(plan, topology=replace(plan.topology, document=planfile.json.dumps(topology)))
    written = planfile.to_json(plan)
    read = planfile.from_text("plan.json", written)
    assert (read.config, read.groups, read.workload) == (plan.config, plan.groups, plan.workload)
    assert planfile.to_json(read) == written
    assert {group["kind"] for group in planfile.json.loads(written)["groups"]} == {"tp", "pp", "dp", "cp", "ep"}


# what is divided and what is conserved


def test_mixtral_has_its_published_parameters_and_flops(mixtral: Model) -> None:
    """arXiv 2401.04088: 47 B parameters, of which a token uses 13 B; here exactly, from its config.json."""
    attention, expert, router = 4096 * (4096 + 2 * 1024) + 4096 * 4096, 3 * 4096 * 14336, 4096 * 8
    assert mixtral.parameters == 46_702_792_704
    assert mixtral.expert_parameters == 8 * expert
    active = mixtral.parameters - 32 * 6 * expert
    assert active == pytest.approx(12.9e9, rel=2e-3)
    s = 4096
    token = 32 * (attention + 2 * expert + router) + 4096 * 32000
    assert Workload(mixtral, 1, s).flops == pytest.approx(6.0 * s * token + 3 * 32 * 4 * s**2 * 4096, rel=1e-12)


def work(model: Model, cp: int = 1, ep: int = 1) -> float:
    return sum(
        k.flops for k in layer_kernels(model, 2, 1024, LayerSharding(2, True, cp, ep), 2) if isinstance(k, Gemm | Attention)
    )


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_parallel_ranks_share_the_flops_of_a_layer(mixtral: Model, cp: int) -> None:
    assert cp * work(mixtral, cp) == work(mixtral)


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_expert_parallel_ranks_do_the_flops_of_their_own_tokens_on_fewer_experts(mixtral: Model, ep: int) -> None:
    assert work(mixtral, ep=ep) == work(mixtral)
    (up,) = (k for k in layer_kernels(mixtral, 2, 1024, LayerSharding(ep=ep), 2) if isinstance(k, Gemm) and k.name == "up")
    assert (up.m, up.count) == (2 * 1024 * 2 * ep // 8, 8 // ep)


def test_shared_experts_see_every_token(mixtral: Model) -> None:
    shared = replace(mixtral, shared_ffn_hidden=1000)
    more = [k for k in layer_kernels(shared, 1, 512, LayerSharding(2, ep=8), 2) if isinstance(k, Gemm) and k.m == 512][3:]
    assert [(k.name, k.m, k.n, k.k, k.count) for k in more] == [("up", 512, 1000, 4096, 1), ("down", 512, 4096, 500, 1)]
    assert shared.layer_parameters - mixtral.layer_parameters == 3 * 4096 * 1000
    assert shared.expert_parameters == mixtral.expert_parameters


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_the_ranks_of_an_expert_group_hold_every_expert_once(mixtral: Model, ep: int) -> None:
    workload = Workload(mixtral, ep, 1024)
    config = ParallelConfig(dp=ep, ep=ep, num_microbatches=(1,) * ep)
    (dense_kind, dense, dense_sharing), (kind, experts, sharing) = memory.by_sharing(workload, config, 4, True, False)
    assert (dense_kind, dense_sharing, kind, sharing) == ("dp", ep, "edp", 1)
    assert ep * experts == 4 * mixtral.expert_parameters
    assert dense + ep * experts == 4 * mixtral.layer_parameters + mixtral.embedding_parameters


def test_activations_fall_with_cp_and_weights_with_ep(mixtral: Model) -> None:
    workload = Workload(mixtral, 8, 8192)

    def config(cp: int = 1, ep: int = 1) -> ParallelConfig:
        return ParallelConfig(dp=8 // cp, cp=cp, ep=ep, num_microbatches=(1,) * (8 // cp))

    whole, _ = memory.layer_activation_bytes(workload, config())
    for cp in (2, 4, 8):
        assert memory.layer_activation_bytes(workload, config(cp)) == (whole / cp, 0.0)
    bytes_of = [memory.place_bytes(workload, config(ep=ep), 4, 1, True, True) for ep in (1, 2, 4, 8)]
    assert bytes_of == sorted(bytes_of, reverse=True)
    saved = 4 * mixtral.expert_parameters * (1 - 1 / 8) * (2 + 4)  # their optimizer state is shared by 8 ranks in both cases
    assert bytes_of[0] - bytes_of[3] == pytest.approx(saved, rel=1e-12)


def test_optimizer_state_is_shared_by_all_ranks_with_the_same_weights(mixtral: Model) -> None:
    workload, config = Workload(mixtral, 2, 1024), ParallelConfig(dp=2, cp=4, num_microbatches=(1, 1))
    assert memory.state_bytes(1e6, workload, config) == pytest.approx(1e6 * (2 + 4 + 12 / 8))
    assert memory.state_bytes(1e6, workload, config, sharing=2) == pytest.approx(1e6 * (2 + 4 + 12 / 2))


# programs


def test_keys_and_values_travel_behind_attention_and_tokens_to_their_experts(nodes: Make) -> None:
    quiet = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}
    plan = nodes(cp=2, dp=2, ep=2, shape=EXPERTS, **quiet)
    program = "F0 ring F0 ep all_to_all B0 ring B0 ep all_to_all dp all_reduce edp all_reduce optimizer"
    assert text(lowering.program(plan, 0, 1)) == program
    again = nodes(cp=2, recompute="full", **quiet)
    assert text(lowering.program(again, 0, 1)) == "F0 ring F0 B0 ring R0 ring B0 dp all_reduce optimizer"


def test_zero_3_gathers_and_reduces_dense_weights_and_experts_each_in_their_group(nodes: Make) -> None:
    plan = nodes(dp=4, ep=2, layers=(1,), shape=EXPERTS, zero_stage=3)
    gathers = "start dp all_gather.0 start edp all_gather.0 wait dp all_gather.0 wait edp all_gather.0"
    reduces = "start dp reduce_scatter.0 start edp reduce_scatter.0"
    assert text(lowering.program(plan, 0, 1)) == (
        f"{gathers} F0 ep all_to_all {gathers} B0 ep all_to_all {reduces} "
        "wait dp reduce_scatter.0 wait edp reduce_scatter.0 optimizer"
    )


def test_replicas_of_a_split_sequence_shard_as_replicas_of_batches_do(nodes: Make) -> None:
    """One replica on two cp ranks: its weights are gathered, its gradients reduced, as if there were two replicas."""
    plan = nodes(cp=2, layers=(1,), zero_stage=3)
    assert plan.config.shards_parameters and plan.config.reduces_each_microbatch
    assert text(lowering.program(plan, 0, 1)) == (
        "start dp all_gather.0 wait dp all_gather.0 F0 ring F0 start dp all_gather.0 wait dp all_gather.0 B0 ring B0 "
        "start dp reduce_scatter.0 wait dp reduce_scatter.0 optimizer"
    )


def test_sharded_weights_and_gradients_are_divided_by_those_who_hold_the_same(mixtral: Model) -> None:
    """ZeRO 3 over dp 4 x cp 2, ep 4: dense weights over eight ranks, experts over two; two layers ahead and one at work."""
    workload = Workload(mixtral, 4, 1024)
    config = ParallelConfig(dp=4, cp=2, ep=4, num_microbatches=(1,) * 4, zero_stage=3)
    assert memory.state_bytes(8e6, workload, config) == pytest.approx(8e6 * (2 + 4 + 12) / 8)
    assert memory.state_bytes(8e6, workload, config, sharing=2) == pytest.approx(8e6 * (2 + 4 + 12) / 2)
    layer = mixtral.layer_parameters - mixtral.expert_parameters * 3 / 4
    assert memory.gathered_bytes(workload, config) == pytest.approx(layer * (3 * 2 + 4))
    alone = replace(config, ep=8)  # a rank's experts are its own: neither gathered nor reduced
    dense = mixtral.layer_parameters - mixtral.expert_parameters
    assert memory.gathered_bytes(workload, alone) == pytest.approx(dense * (3 * 2 + 4))


def test_weight_gradients_that_are_split_off_move_no_keys_and_no_tokens(nodes: Make) -> None:
    plan = nodes(cp=2, dp=2, ep=2, shape=EXPERTS, schedule="zb-h1", zero_stage=0, overlap_grad_reduce=False)
    assert text(lowering.program(plan, 0, 1)) == (
        "F0 ring F0 ep all_to_all B0 ring B0 ep all_to_all W0 dp all_reduce edp all_reduce optimizer"
    )


def test_messages_are_slices_of_a_slice_and_experts_get_the_whole_of_it(nodes: Make) -> None:
    """b 1, s 64, h 96, 2 bytes on cp 2, tp 2: without sequence parallelism both tensor-parallel ranks hold all tokens."""
    plan = nodes(tp=2, cp=2, pp=2, dp=2, ep=2, shape=EXPERTS)
    workload, config = plan.workload, plan.config
    assert payloads.message_bytes(workload, config) == 64 / 2 * 96 * 2 / 2
    assert payloads.gathered_bytes(workload, config) == 64 / 2 * 96 * 2
    assert payloads.expert_collectives(workload, config, 1, False) == (("all_to_all", 2 * 64 / 2 * 96 * 2, 2.0),)


def test_payloads_of_ring_and_experts(nodes: Make) -> None:
    """b 1, s 64, h 96, 24 heads of 4, 2 bytes: K and V of the whole sequence go around, once a layer; two all_to_alls of two
    copies of the rank's tokens."""
    plan = nodes(tp=2, cp=2, dp=2, ep=2, layers=(3,), shape=EXPERTS, sequence_parallel=True)
    workload, config = plan.workload, plan.config
    keys_and_values, tokens = 2 * 64 * (96 / 2) * 2, 64 / 2 / 2 * 2 * 96 * 2
    assert payloads.ring_exchanges(workload, config, 3, False) == (("F", keys_and_values, 3.0),)
    assert payloads.ring_exchanges(workload, config, 3, True) == (("B", 2 * keys_and_values, 3.0),)
    assert payloads.expert_collectives(workload, config, 3, False) == (("all_to_all", tokens, 6.0),)
    full = replace(config, recompute="full")
    assert payloads.ring_exchanges(workload, full, 3, True) == (("R", keys_and_values, 3.0), ("B", 2 * keys_and_values, 3.0))
    assert payloads.expert_collectives(workload, full, 3, True) == (("all_to_all", tokens, 12.0),)


def test_tensor_parallel_experts_gather_the_tokens_dispatched_to_them(nodes: Make) -> None:
    """Two copies of every token for the experts; attention, and experts that all tokens share, gather each token once."""
    plan = nodes(tp=2, layers=(3,), shape=EXPERTS, sequence_parallel=True)
    shared = nodes(tp=2, layers=(3,), shape=EXPERTS | {"shared_ffn_hidden": 96}, sequence_parallel=True)
    once, twice = 64 * 96 * 2.0, 2 * 64 * 96 * 2.0
    routed = (("all_gather", twice, 3.0), ("reduce_scatter", twice, 3.0))
    for asked, count in ((plan, 3.0), (shared, 6.0)):
        found = payloads.tensor_collectives(asked.workload, asked.config, 3, False, False, False)
        assert found == (("all_gather", once, count), ("reduce_scatter", once, count), *routed)


def test_an_all_to_all_of_three_ranks_as_a_round() -> None:
    (only,) = rounds("all_to_all", "all_to_all", ((0, 1), (2,)))
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert only.transfers == tuple(Transfer(a, b, 1 / 3, float((a, b) == (0, 2))) for a, b in pairs)
    assert rounds("ring", "all_to_all", ((0, 1), (2,))) == (only,), "a ring leaves it to those who can"


# the engine


@pytest.mark.parametrize("bandwidth", [1e6, 1e8, 1e10, 1e13])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_what_attention_does_not_hide_of_the_ring_is_exposed(nodes: Make, bandwidth: float, recompute: str) -> None:
    """Of cp steps of attention, cp - 1 go on beside an exchange: exposed = max(0, exchange - (cp - 1) / cp x attention)."""
    facts = {"cp": 4, "layers": (3,), "microbatches": 2, "seq_len": 1024, "recompute": recompute, "zero_stage": 0}
    plan = nodes(bandwidth, 0.0, **facts)
    free = nodes(1e30, 0.0, **facts)
    (core,) = (kernel for kernel in rank_kernels(plan.workload, plan.config) if isinstance(kernel, Attention))
    device = plan.fleet.spec(plan.placement[0])
    attention = [attention_seconds(core, device, "bf16", 2, "flash", backward) for backward in (False, True)]
    once = 3 * 2 * (1024 / 4) * 96 * 2 / (4 * bandwidth)  # three steps of K and V of a quarter of the sequence
    exposed = max(0.0, once - 0.75 * attention[0]) * (2 if recompute == "full" else 1)
    exposed += max(0.0, 2 * once - 0.75 * attention[1])
    reduced = 2 * 0.75 * 4 * memory.stage_parameters(plan.workload, plan.config, 3, True, True) / (4 * bandwidth)
    assert simulate(plan).step_s - simulate(free).step_s == pytest.approx(2 * 3 * exposed + reduced, rel=1e-9, abs=1e-12)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("facts", [{"dp": 4, "ep": 4}, {"dp": 2, "cp": 2, "ep": 4, "tp": 2}, {"cp": 2, "tp": 2}, {"cp": 8}])
@pytest.mark.parametrize("zero_stage", [0, 1])
def test_one_stage_takes_exactly_the_closed_form(nodes: Make, facts: dict[str, int], zero_stage: int) -> None:
    """One kind of group reduces gradients: experts that one rank alone holds are not reduced."""
    plan = nodes(microbatches=3, layers=(3,), shape=EXPERTS, zero_stage=zero_stage, **facts)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


def test_tokens_of_experts_in_four_nodes_take_their_bytes_over_the_nics(nodes: Make) -> None:
    """Sixteen ranks, four a node: a rank sends 12/16 of its payload out of the node, four ranks share the NIC; four times."""
    facts = {"dp": 16, "ep": 16, "layers": (1,), "shape": {"experts": 16, "experts_per_token": 2}, "zero_stage": 0}
    slow, twice = nodes(1e6, 0.0, **facts), nodes(2e6, 0.0, **facts)
    dense = memory.by_sharing(slow.workload, slow.config, 1, True, True)[0][1]
    reduced = 2 * 15 / 16 * 4 * dense / 1e6
    tokens = 4 * (4 * 12 / 16 * 64 * 2 * 96 * 2) / 1e6
    assert simulate(slow).step_s - simulate(twice).step_s == pytest.approx((tokens + reduced) / 2, rel=1e-9)


@pytest.mark.parametrize(
    "facts",
    [
        {"tp": 2, "cp": 2, "dp": 2, "pp": 2, "ep": 2},
        {"cp": 4, "dp": 2, "pp": 2, "ep": 4},
        {"tp": 4, "cp": 2, "pp": 2, "schedule": "gpipe"},
        {"dp": 16, "ep": 4, "recompute": "full"},
        {"dp": 4, "cp": 2, "tp": 2, "ep": 4, "zero_stage": 3},
        {"dp": 4, "cp": 2, "pp": 2, "ep": 2, "zero_stage": 2, "schedule": "zb-h1"},
    ],
)
def test_sixteen_ranks_fold_exactly_and_are_not_faster_than_the_closed_form(nodes: Make, facts: dict[str, object]) -> None:
    plan = nodes(microbatches=4, shape=EXPERTS, **facts)
    step = simulate(plan).step_s
    assert len(fold(plan).representatives) == plan.config.pp
    assert step == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)
    assert plan_costs.upper_bound_seconds(plan) <= step


@given(data=st.data())
def test_no_plan_is_faster_than_every_device_always_busy(data: st.DataObject, plans: Make) -> None:
    """The yardstick has tensor-parallel groups inside nodes; scattered ones may find wires that are quicker."""
    plan = data.draw(plans(ranks=16))
    assume(all(group.transport == "intra_node" for group in plan.groups if group.kind == "tp"))
    assert plan_costs.upper_bound_seconds(plan) <= simulate(plan).step_s
