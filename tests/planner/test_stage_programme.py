"""The stage model against brute force: every pipeline of small fleets is built and priced by the closed form of its plan."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.bounds.quick_estimate import estimate_over
from planner.bounds.relaxation import quick_bound
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.models.class_orders import orders
from planner.models.stage_programme import Assignment, solve
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.space.shapes import Shape, slots
from sim.analytic import plan_costs
from sim.errors import PlanError
from sim.hardware.cluster import Cluster, Fleet, Trunk
from sim.hardware.topology import Topology
from sim.kernels import memory
from sim.workload.model import Model
from sim.workload.workload import Workload

NEVER = 1e9
"""Seconds that no step takes: a cutoff that cuts nothing."""
SEEDS = range(120)
PRICES: dict[tuple[Request, Shape], dict[tuple[tuple[str, int], ...], float]] = {}
"""Closed forms of the pipelines built so far: one seed has several tests, side by side (`each_seed`)."""


def each_seed(seeds: range):
    """A test of many seeds; those of one seed run one after the other, so that they share what was reckoned."""
    return pytest.mark.parametrize("seed", seeds, scope="module")


@pytest.fixture(scope="session")
def made(make_device, make_wire, make_nic, make_cluster, make_fleet, make_model):
    """A seed -> a question and a shape: one to three unlike clusters, two to six layers, a few microbatches."""

    def cluster(rng: random.Random, name: str, hidden: int):
        nics = (make_nic("ethernet", rng.choice([1e6, 3e6]), latency=rng.choice([3e-3, 2e-2])),)
        if rng.random() < 0.6:
            nics = (make_nic(rng.choice(["infiniband", "roce"]), rng.choice([5e6, 2e7]), latency=3e-3), *nics)
        spec = make_device(
            f"chip-{name}", rng.choice([1e9, 2e9, 5e9]), rng.choice([2e8, 1e9]),
            memory=rng.choice([5e6, 8e6, 16e6, 1e9]) * (hidden / 96) ** 2,
        )  # fmt: skip
        return make_cluster(
            name, nodes=rng.randint(1, 3), devices=rng.randint(1, 2), nics=nics, spec=spec,
            intra_node=make_wire(bandwidth=rng.choice([2e7, 1e8]), latency=rng.choice([0.0, 3e-3])),
        )  # fmt: skip

    def instance(seed: int) -> tuple[Request, Shape]:
        rng = random.Random(seed)
        hidden = rng.choice([96, 192])
        clusters = [cluster(rng, name, hidden) for name in "abc"[: rng.choice([1, 2, 2, 3])]]
        trunks = tuple(
            Trunk((a.name, b.name), "ethernet", rng.choice([1e5, 1e6, 1e7]), rng.choice([0.0, 5e-2]))
            for a, b in itertools.combinations(clusters, 2)
        )
        shape = Shape(
            tp=rng.choice([1, 1, 1, 2]), dp=rng.choice([1, 1, 2]), microbatch_size=1,
            recompute=rng.choice(["none", "full"]), schedule=rng.choice(["1f1b", "1f1b", "1f1b", "gpipe"]), vpp=1,
            zero_stage=rng.choice([0, 1, 2, 3]),
        )  # fmt: skip
        clusters = [roomier(cluster, taken(shape.tp)) for cluster in clusters]
        shaped = make_model(rng.randint(2, 6), hidden, tied_embeddings=rng.random() < 0.4)
        batch = shape.dp * rng.randint(1, 6)
        return asked(make_fleet(*clusters, trunks=trunks), shaped, batch), shape

    return instance


def taken(tp: int = 1) -> float:
    """Bytes of a device that no layer can have."""
    return memory.WORKSPACE + (memory.OUTSIDE_TP if tp > 1 else memory.OUTSIDE)


def roomier(cluster: Cluster, nbytes: float) -> Cluster:
    """A cluster whose devices have so many bytes more."""
    node, device = cluster.node, cluster.node.device
    return replace(cluster, node=replace(node, device=replace(device, memory=device.memory + nbytes)))


def asked(machines: Fleet, shaped: Model, batch: int, wishes: Wishes | None = None, seq_len: int = 64) -> Request:
    workload = Workload(shaped, batch, seq_len, "bf16")
    return Request(Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"})), workload, wishes or Wishes())


def compositions(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many whole numbers of at least 1."""
    for cuts in itertools.combinations(range(1, number), parts - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, number)))


def pipelines(question: Request, shape: Shape) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every pipeline of whole stages in which each cluster's stages stand together: all orders, sizes and lengths."""
    layers = question.workload.model.layers
    room = {c.name: slots(c, shape.tp) // shape.dp for c in question.clusters() if c.node.count >= shape.tp}
    names = [name for name, capacity in room.items() if capacity]
    for some in range(1, len(names) + 1):
        for order in itertools.permutations(names, some):
            for counts in itertools.product(*(range(1, min(room[name], layers) + 1) for name in order)):
                if sum(counts) <= layers:
                    places = [name for name, count in zip(order, counts, strict=True) for _ in range(count)]
                    for split in compositions(layers, sum(counts)):
                        yield tuple(zip(places, split, strict=True))


def growing(stages: tuple[tuple[str, int], ...]) -> bool:
    """Whether the middle stages of every cluster grow along the pipeline; the stage before a border is as it likes."""
    free = {0, len(stages) - 1} | {i for i, (a, b) in enumerate(itertools.pairwise(stages)) if a[0] != b[0]}
    middle = [stage for i, stage in enumerate(stages) if i not in free]
    return all(a[1] <= b[1] for a, b in itertools.pairwise(middle) if a[0] == b[0])


def brute(question: Request, shape: Shape, only=lambda stages: True) -> tuple[float, tuple[tuple[str, int], ...]]:
    """Closed form and stages of the fastest pipeline that fits; infinite where none does."""
    best = math.inf, ()
    prices = PRICES.setdefault((question, shape), {})
    for stages in filter(only, pipelines(question, shape)):
        if stages not in prices:
            prices[stages] = price(question, shape, stages)
        if prices[stages] < best[0]:
            best = prices[stages], stages
    return best


def price(question: Request, shape: Shape, stages: tuple[tuple[str, int], ...]) -> float:
    """Closed form of the plan of a pipeline; infinite where there is none, or none that fits."""
    try:
        plan = build(question, shape, stages, "by hand")
    except PlanError:
        return math.inf
    return plan_costs.step_seconds(plan) if fits(plan) else math.inf


def single(option: NodeClass) -> Assignment:
    """The pipeline of one stage on a class."""
    stages, seconds = ((option.cluster.name, option.workload.model.layers),), option.single_seconds()
    return Assignment(stages, seconds, seconds, True, "closed form")


@functools.cache
def answers(question: Request, shape: Shape, pp: int | None = None, cutoff: float = NEVER) -> list[Assignment]:
    """What the stage model says for a shape, over all orders of classes, and for pipelines of one place."""
    context = PlanningContext(question)
    classes = node_classes(context, shape)
    singles = [option for option in classes if shape.vpp == 1 and pp in (None, 1) and option.single_seconds() < cutoff]
    found = [
        single(option) for option in singles if option.memory.held("only", option.workload.model.layers) >= option.least_held
    ]
    if pp != 1:
        found += [solve(context, order, pp, cutoff, 30.0) for order in orders(context, classes)]
    return [assignment for assignment in found if assignment is not None]


def alike(question: Request, shape: Shape) -> bool:
    """Whether neighbouring stages of every cluster are joined alike: none shares a node while others do not."""
    for cluster in question.clusters():
        each = cluster.node.count // shape.tp
        if each and slots(cluster, shape.tp) >= 2 * shape.dp and cluster.nodes > 1 and each > 1 and shape.dp % each:
            return False
    return True


@each_seed(SEEDS)
def test_no_pipeline_is_faster_than_the_bound(made, seed):
    """The bound holds for every order, length and size of stages that grow within a class; the quick one for all."""
    question, shape = made(seed)
    fastest, _ = brute(question, shape, growing)
    found = answers(question, shape)
    bound = min((assignment.bound for assignment in found), default=math.inf)
    assert bound <= fastest * (1 + 1e-6) or bound == fastest == math.inf
    context = PlanningContext(question)
    quick = quick_bound(context, shape, node_classes(context, shape))
    assert quick <= brute(question, shape)[0] * (1 + 1e-9)
    if found:
        assert quick <= bound * (1 + 1e-6), "a closer look never lowers the bound"


@each_seed(SEEDS)
def test_the_best_assignment_of_one_cluster_of_alike_stages_is_the_best_pipeline(made, seed):
    """One cluster whose stages are joined alike: exact. Several: optimistic at borders, so at most 10 % off here."""
    question, shape = made(seed)
    fastest, _ = brute(question, shape, growing)
    built = min((price(question, shape, assignment.stages) for assignment in answers(question, shape)), default=math.inf)
    if fastest == math.inf:
        assert built == math.inf
    elif alike(question, shape):
        one = len(question.topology.fleet.clusters) == 1
        assert fastest * (1 - 1e-9) <= built <= fastest * (1 + 1e-9 if one else 1.10)


@each_seed(range(0, 120, 3))
def test_a_pinned_pp_is_kept_and_bounded(made, seed):
    question, shape = made(seed)
    for pp in (1, 2, 3):
        found = answers(question, shape, pp)
        assert all(len(assignment.stages) == pp for assignment in found)
        fastest, _ = brute(question, shape, lambda stages, pp=pp: len(stages) == pp and growing(stages))
        assert min((a.bound for a in found), default=math.inf) <= fastest * (1 + 1e-6)


@each_seed(range(1, 120, 3))
def test_what_an_assignment_says_of_itself_is_so(made, seed):
    question, shape = made(seed)
    room = {c.name: slots(c, shape.tp) // shape.dp for c in question.clusters()}
    for assignment in answers(question, shape):
        assert assignment.proved
        assert assignment.bound <= assignment.seconds * (1 + 1e-9)
        names = [name for name, _ in assignment.stages]
        assert sum(layers for _, layers in assignment.stages) == question.workload.model.layers
        assert all(names.count(name) <= room[name] for name in names)
        assert len([name for name, _ in itertools.groupby(names)]) == len(set(names)), "a cluster's stages stand together"
        assert fits(build(question, shape, assignment.stages, "by hand")), "the memory of the model is the memory of the plan"


def test_a_cutoff_below_the_optimum_leaves_nothing_and_above_it_changes_nothing(made):
    for seed in range(40):
        question, shape = made(seed)
        free = answers(question, shape)
        if free:
            best = min(assignment.seconds for assignment in free)
            assert answers(question, shape, cutoff=best * 0.999) == []
            above = min(assignment.seconds for assignment in answers(question, shape, cutoff=best * 1.01))
            assert above == pytest.approx(best, rel=1e-6, abs=2e-6), "but for the tolerance of the solver"


# faults that brute force finds


@pytest.mark.parametrize("seed", [61, 132, 306, 505, 600])
def test_no_pipeline_is_faster_than_the_bound_even_if_the_stage_at_a_border_is_small(made, seed):
    """(b, 2) (b, 2) (b, 1) | (a, 1): the stage that waits for the messages over the border should be the smallest."""
    question, shape = made(seed)
    assert min(assignment.bound for assignment in answers(question, shape)) <= brute(question, shape, growing)[0] * (1 + 1e-6)


def test_no_pipeline_is_faster_than_the_bound_even_if_nodes_are_joined_faster_than_their_devices(
    make_cluster, make_fleet, make_model, make_nic, make_wire, make_device
):
    """Messages between stages 0 and 1 stay in the node and are slow; those between stages 1 and 2 leave it and are fast."""
    spec = make_device(speed=1e9)
    nic, wire = make_nic(bandwidth=1e8), make_wire(bandwidth=1e6)
    machines = make_fleet(make_cluster(nodes=2, devices=2, nics=(nic,), spec=spec, intra_node=wire))
    question = asked(machines, make_model(3), 6)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    assert min(assignment.bound for assignment in answers(question, shape)) <= brute(question, shape)[0] * (1 + 1e-6)


def test_the_bound_holds_for_steps_of_a_fraction_of_a_millisecond(make_cluster, make_fleet, make_model, make_nic, make_device):
    """The solver's tolerances are absolute (1e-6): seconds must not be its unit where a step takes 1e-4 of them."""
    spec = make_device(speed=3e13, memory_bandwidth=3e12)
    fast = make_cluster(nodes=4, devices=1, nics=(make_nic(bandwidth=3e9),), spec=spec)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    for layers, batch in itertools.product(range(2, 9), (2, 3, 5, 8)):
        question = asked(make_fleet(fast), make_model(layers), batch)
        bound = min(assignment.bound for assignment in answers(question, shape))
        assert bound <= brute(question, shape, growing)[0] * (1 + 1e-6)


def test_the_quick_bound_holds_for_few_microbatches(make_cluster, make_fleet, make_model, make_device):
    """Two microbatches, two stages: 4 | 2 layers end sooner (8) than 3 | 3 (9), as the second stage waits for the first."""
    machines = make_fleet(make_cluster(nodes=2, spec=make_device(speed=1e9)))
    question = asked(machines, make_model(6, vocab=24), 2)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    context = PlanningContext(question)
    fastest, stages = brute(question, shape)
    assert [layers for _, layers in stages] == [4, 2]
    assert quick_bound(context, shape, node_classes(context, shape)) <= fastest


def test_the_estimate_knows_that_the_first_message_and_the_tied_embedding_cross_the_trunk(
    make_cluster, make_fleet, make_model, make_device, make_nic
):
    """One microbatch: a message goes there and one back, which nothing hides; the embedding sums over the trunk, too."""
    ethernet, chip = make_nic("ethernet", 1e6), make_device(speed=1e9)
    shape = Shape(1, 1, 1, "none", "zb-h2", 1, 1)

    def estimate(tied: bool) -> tuple[float, float, float]:
        clusters = [make_cluster(name, 1, 1, (ethernet,), chip) for name in ("a", "b")]
        machines = make_fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),))
        question = asked(machines, make_model(2, tied_embeddings=tied), 1)
        context = PlanningContext(question)
        classes = node_classes(context, shape)
        message, summed = context.messages.least(*clusters, shape), context.tied.least(*clusters, shape, 1)
        assert message > 0
        assert (summed > 0) is tied
        crossing = estimate_over(context, shape, classes, False, True)
        return crossing - estimate_over(context, shape, classes, False, False), message, summed

    for tied in (False, True):
        more, message, summed = estimate(tied)
        assert more == pytest.approx(2 * message + summed)


def along(order: str, pp: int):
    """Whether a pipeline of so many places stands on clusters in this order, some of them left out."""

    def kept(stages: tuple[tuple[str, int], ...]) -> bool:
        names = [name for name, _ in itertools.groupby(name for name, _ in stages)]
        return len(stages) == pp and growing(stages) and names == [name for name in order if name in names]

    return kept


@pytest.mark.parametrize("pp", [2, 3, 4])
def test_the_bound_of_an_order_holds_for_one_last_stage_behind_a_slow_border(
    make_cluster, make_fleet, make_model, make_device, make_nic, pp
):
    """What the last stage waits for its last gradient to leave is over the border, and is not part of the way back."""
    fast, slow = make_nic(bandwidth=1e9), make_nic("ethernet", 1e6)
    alone = make_cluster("a", 1, 1, (slow,), make_device("chip-a", 5e9, 1e9))
    many = make_cluster("b", 3, 1, (fast, slow), make_device("chip-b", 5e9, 1e9))
    machines = make_fleet(alone, many, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),))
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    for layers, batch in itertools.product((4, 5, 6), (1, 2, 3)):
        question = asked(machines, make_model(layers), batch)
        context = PlanningContext(question)
        for order in orders(context, node_classes(context, shape)):
            found = solve(context, order, pp, NEVER, 30.0)
            fastest, _ = brute(question, shape, along("".join(option.cluster.name for option in order), pp))
            assert found is not None
            assert found.bound <= fastest * (1 + 1e-6)


def test_the_bound_holds_where_later_stages_lie_better_on_their_nodes_than_the_first(
    make_cluster, make_fleet, make_model, make_device, make_nic, make_wire
):
    """Four replicas on nodes of three devices: 3 + 1 for the first stage, 2 + 2 for the second, whose sums are faster."""
    spec, nic = make_device(speed=5e9, memory_bandwidth=1e9), make_nic(bandwidth=2e7, latency=3e-3)
    machines = make_fleet(
        make_cluster(nodes=4, devices=3, nics=(nic,), spec=spec, intra_node=make_wire(bandwidth=2e8, latency=3e-3))
    )
    shape = Shape(1, 4, 1, "none", "1f1b", 1, 0)
    for layers, batch in itertools.product((3, 4, 5), (4, 8, 24)):
        question = asked(machines, make_model(layers, 192), batch)
        for pp in (2, 3):
            fastest, _ = brute(question, shape, lambda stages, pp=pp: len(stages) == pp and growing(stages))
            assert min(assignment.bound for assignment in answers(question, shape, pp)) <= fastest * (1 + 1e-6)


@pytest.mark.parametrize("vpp", [2, 3])
def test_the_bounds_hold_for_interleaved_stages(make_cluster, make_fleet, make_model, make_device, vpp):
    machines = make_fleet(make_cluster(nodes=3, spec=make_device(speed=1e9)))
    for layers, batch in itertools.product(range(4, 9), (6, 12)):
        question, shape = asked(machines, make_model(layers, vocab=24), batch), Shape(1, 1, 1, "none", "interleaved", vpp, 1)
        fastest, _ = brute(question, shape, lambda stages: len(stages) > 1 and growing(stages))
        context = PlanningContext(question)
        assert min((a.bound for a in answers(question, shape)), default=math.inf) <= fastest * (1 + 1e-6)
        assert quick_bound(context, shape, node_classes(context, shape)) <= fastest * (1 + 1e-6)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
@pytest.mark.parametrize("nodes", [(5,), (3, 1)])
def test_the_bounds_hold_where_the_backward_is_split(
    make_cluster, make_fleet, make_model, make_device, make_nic, schedule, nodes
):
    nics = (make_nic(bandwidth=1e8), make_nic("ethernet", 1e8))
    clusters = [
        make_cluster(name, nodes=count, nics=nics, spec=make_device(f"chip-{name}", speed, memory=taken() + 2e7))
        for name, count, speed in zip("ab", nodes, (1e9, 2e9), strict=False)
    ]
    trunks = (Trunk(("a", "b"), "ethernet", 1e7, 1e-3),) if len(nodes) > 1 else ()
    machines, shape = make_fleet(*clusters, trunks=trunks), Shape(1, 1, 1, "none", schedule, 1, 1)
    for layers, batch in itertools.product((3, 5), (2, 4, 8)):
        question = asked(machines, make_model(layers, vocab=24), batch)
        context = PlanningContext(question)
        fastest, _ = brute(question, shape, growing)
        assert min((a.bound for a in answers(question, shape)), default=math.inf) <= fastest * (1 + 1e-6)
        assert quick_bound(context, shape, node_classes(context, shape)) <= brute(question, shape)[0] * (1 + 1e-9)
        for pp in (2, 3, 4):
            longer, _ = brute(question, shape, lambda stages, pp=pp: len(stages) == pp and growing(stages))
            assert min((a.bound for a in answers(question, shape, pp)), default=math.inf) <= longer * (1 + 1e-6)


# what the answers look like


def test_the_first_of_many_stages_holds_most_microbatches_and_so_fewest_layers(
    make_cluster, make_fleet, make_model, make_device
):
    """Place 0 of four holds four microbatches, the last one: where activations fill the memory, layers grow along the pipe."""
    shaped, shape = make_model(8, vocab=24), Shape(1, 1, 1, "none", "1f1b", 1, 1)

    def question(room: float) -> Request:
        machines = make_fleet(make_cluster(nodes=4, spec=make_device(speed=1e9, memory=taken() + room)))
        return asked(machines, shaped, 16, seq_len=1024)

    def splits(room: float) -> list[int] | None:
        found = answers(question(room), shape, pp=4)
        return [layers for _, layers in found[0].stages] if found else None

    assert splits(1e9) == [2, 2, 2, 2]
    assert splits(22e6) is None
    assert splits(23e6) == [1, 1, 2, 4]
    of_four = lambda stages: len(stages) == 4  # noqa: E731
    assert brute(question(22e6), shape, of_four)[0] == math.inf
    assert [layers for _, layers in brute(question(23e6), shape, of_four)[1]] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("speeds", "split"), [((2e9, 2e9), (6, 6)), ((4e9, 2e9), (8, 4)), ((1e9, 2e9), (4, 8)), ((5e9, 1e9), (10, 2))]
)
def test_layers_follow_the_speed_of_the_class(make_cluster, make_fleet, make_model, make_device, make_nic, speeds, split):
    clusters = [
        make_cluster(name, nics=(make_nic("ethernet", 1e9),), spec=make_device(f"chip-{name}", speed))
        for name, speed in zip("ab", speeds, strict=True)
    ]
    machines = make_fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question, shape = asked(machines, make_model(12, vocab=24), 64), Shape(1, 1, 1, "none", "1f1b", 1, 1)
    best = min(answers(question, shape, pp=2), key=lambda assignment: assignment.seconds)
    assert dict(best.stages) == dict(zip("ab", split, strict=True))


def test_stages_beside_a_slow_border_get_fewer_layers(make_cluster, make_fleet, make_model, make_device, make_nic):
    """A message over the border lasts as long as two layers: the stages inside carry those layers instead."""
    nics = (make_nic(bandwidth=1e9), make_nic("ethernet", 1e9))
    clusters = (
        make_cluster("a", 2, nics=nics, spec=make_device(speed=1e9)),
        make_cluster("b", 2, nics=nics, spec=make_device(speed=1e9)),
    )
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)

    def split(bandwidth: float) -> list[int]:
        machines = make_fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", bandwidth, 0.0),))
        found = answers(asked(machines, make_model(16, vocab=24), 64), shape, pp=4)
        return [layers for _, layers in min(found, key=lambda assignment: assignment.seconds).stages]

    assert split(1e9) == [4, 4, 4, 4]
    assert split(1.2e5)[1] < 4 < split(1.2e5)[0], "the stage before the border; what comes back over it is not modelled"


def test_orders_are_all_of_three_classes_and_the_cheapest_path_of_more(
    make_cluster, make_fleet, make_model, make_device, make_nic
):
    def names(count: int, trunks: tuple[Trunk, ...]) -> list[str]:
        clusters = [make_cluster(name, nics=(make_nic("ethernet", 1e9),)) for name in "abcd"[:count]]  # alike but for trunks
        question = asked(make_fleet(*clusters, trunks=trunks), make_model(8), 8)
        shape, context = Shape(1, 1, 1, "none", "1f1b", 1, 1), PlanningContext(question)
        return ["".join(option.cluster.name for option in order) for order in orders(context, node_classes(context, shape))]

    def joined(*pairs: str) -> tuple[Trunk, ...]:
        return tuple(Trunk((pair[0], pair[1]), "ethernet", 1e9, 1e-2) for pair in pairs)

    assert sorted(names(3, joined("ab", "ac", "bc"))) == ["abc", "acb", "bac", "bca", "cab", "cba"]
    assert sorted(names(4, joined("ac", "cb", "bd"))) == ["acbd", "dbca"], "along the trunks"
