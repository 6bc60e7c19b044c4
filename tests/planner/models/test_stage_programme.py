"""The stage model against brute force: every pipeline of small fleets is built and priced by the closed form of its plan."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from planner.bounds.relaxation import quick_bound
from planner.bounds.single_stage import single_seconds
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.models.class_orders import orders
from planner.models.stage_programme import Assignment, solve
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slots
from planner.time_limit import TimeLimit
from sim.analytic import plan_costs
from sim.errors import PlanError
from sim.hardware.cluster import Cluster, Trunk
from sim.hardware.memory_facts import WORKSPACE
from tests import builders as make
from tests.more import after
from tests.planner import outside_torch
from tests.planner.builders import NO_LIMIT, Stages, pipelines, request
from tests.planner.models.problem import NODES

Only = Callable[[Stages], bool]

NEVER = 1e9
"""Seconds that no step takes: a cutoff that cuts nothing."""
SEEDS = range(1, 44)
"""Seed 0 has the most pipelines."""


def cluster(rng: random.Random, name: str, hidden: int) -> Cluster:
    """One to three nodes of one or two devices, short of memory at times."""
    nics = (make.nic("ethernet", rng.choice([1e6, 3e6]), latency=rng.choice([3e-3, 2e-2])),)
    if rng.random() < 0.6:
        nics = (make.nic(rng.choice(["infiniband", "roce"]), rng.choice([5e6, 2e7]), latency=3e-3), *nics)
    spec = make.device(
        f"chip-{name}", rng.choice([1e9, 2e9, 5e9]), rng.choice([2e8, 1e9]),
        memory=rng.choice([5e6, 8e6, 16e6, 1e9]) * (hidden / 96) ** 2,
    )  # fmt: skip
    return make.cluster(
        name, nodes=rng.randint(1, 3), devices=rng.randint(1, 2), nics=nics, spec=spec,
        intra_node=make.wire(bandwidth=rng.choice([2e7, 1e8]), latency=rng.choice([0.0, 3e-3])),
    )  # fmt: skip


def drawn(seed: int) -> tuple[Request, Shape]:
    """A request and a shape: one to three different clusters, two to six layers, a few microbatches."""
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
    shaped = make.model(rng.randint(2, 6), hidden, tied_embeddings=rng.random() < 0.4)
    batch = shape.dp * rng.randint(1, 6)
    return request(make.fleet(*clusters, trunks=trunks), shaped, batch), shape


def taken(tp: int = 1) -> float:
    """Bytes of a device that no layer can have."""
    return WORKSPACE + outside_torch.CONTEXT + (outside_torch.COMMUNICATOR if tp > 1 else 0.0)


def roomier(cluster: Cluster, nbytes: float) -> Cluster:
    """A cluster whose devices have so many bytes more."""
    node, device = cluster.node, cluster.node.device
    return replace(cluster, node=replace(node, device=replace(device, memory=device.memory + nbytes)))


def growing(stages: tuple[tuple[str, int], ...]) -> bool:
    """Whether the middle stages of every cluster grow along the pipeline; the stage before a border is as it likes."""
    free = {0, len(stages) - 1} | {i for i, (a, b) in enumerate(itertools.pairwise(stages)) if a[0] != b[0]}
    middle = [stage for i, stage in enumerate(stages) if i not in free]
    return all(a[1] <= b[1] for a, b in itertools.pairwise(middle) if a[0] == b[0])


def fastest_pipeline(question: Request, shape: Shape, only: Only = lambda stages: True) -> tuple[float, Stages]:
    """Closed form and stages of the fastest pipeline that fits; infinite where none does."""
    return least(prices(question, shape, only), only)


def prices(question: Request, shape: Shape, only: Only = lambda stages: True) -> dict[Stages, float]:
    """Closed form of every pipeline of whole stages."""
    return {stages: price(question, shape, stages) for stages in pipelines(question, shape) if only(stages)}


def least(priced: Mapping[Stages, float], only: Only = lambda stages: True) -> tuple[float, Stages]:
    """Closed form and stages of the fastest of given pipelines; infinite where none fits."""
    stages = min(filter(only, priced), key=priced.__getitem__, default=())
    return (priced[stages], stages) if stages and priced[stages] < math.inf else (math.inf, ())


def price(question: Request, shape: Shape, stages: tuple[tuple[str, int], ...]) -> float:
    """Closed form of the plan of a pipeline; infinite where there is none, or none that fits."""
    try:
        plan = build(question, shape, stages, "by hand")
    except PlanError:
        return math.inf
    return plan_costs.step_seconds(plan) if fits(plan) else math.inf


def single(option: NodeClass) -> Assignment:
    """The pipeline of one stage on a class."""
    stages, seconds = ((option.cluster.name, option.workload.model.layers),), single_seconds(option)
    return Assignment(stages, seconds, seconds, True, "closed form")


def answers(question: Request, shape: Shape, pp: int | None = None, cutoff: float = NEVER) -> list[Assignment]:
    """What the stage model says for a shape, over all orders of classes, and for pipelines with a single stage."""
    context = PlanningContext(question)
    classes = node_classes(context, shape)
    singles = [option for option in classes if shape.vpp == 1 and pp in (None, 1) and single_seconds(option) < cutoff]
    found = [
        single(option) for option in singles if option.memory.held("only", option.workload.model.layers) >= option.least_held
    ]
    if pp != 1:
        found += [
            solve(context, order, (pp or 1, pp), cutoff, NODES, TimeLimit(NO_LIMIT)) for order in orders(context, classes)
        ]
    return [assignment for assignment in found if assignment is not None]


def alike(question: Request, shape: Shape) -> bool:
    """Whether neighbouring stages of every cluster are joined alike: none shares a node while others do not."""
    for cluster in question.clusters():
        each = cluster.node.count // shape.tp
        if each and slots(cluster, shape.tp) >= 2 * shape.dp and cluster.nodes > 1 and each > 1 and shape.dp % each:
            return False
    return True


@dataclass(frozen=True)
class Case:
    """A drawn request and shape, the closed form of each of its pipelines, and the solutions of the stage programme."""

    request: Request
    shape: Shape
    prices: dict[Stages, float]
    answers: list[Assignment]


@pytest.fixture(scope="module", params=after(8, SEEDS, last=12))
def case(request: pytest.FixtureRequest) -> Case:
    question, shape = drawn(request.param)
    return Case(question, shape, prices(question, shape), answers(question, shape))


def test_no_pipeline_is_faster_than_the_bound(case):
    """The bound holds for every order, length and size of stages that grow within a class; the quick one for all."""
    fastest, _ = least(case.prices, growing)
    bound = min((assignment.bound for assignment in case.answers), default=math.inf)
    assert bound <= fastest * (1 + 1e-6) or bound == fastest == math.inf
    context = PlanningContext(case.request)
    quick = quick_bound(context, case.shape, node_classes(context, case.shape))
    assert quick <= least(case.prices)[0] * (1 + 1e-9)
    if case.answers:
        assert quick <= bound * (1 + 1e-6), "a closer look never lowers the bound"


def test_the_best_assignment_of_one_cluster_of_alike_stages_is_the_best_pipeline(case):
    """One cluster whose stages are joined alike: exact. Several: optimistic at borders, so at most 10 % off here."""
    fastest, _ = least(case.prices, growing)
    built = min((case.prices[assignment.stages] for assignment in case.answers), default=math.inf)
    if fastest == math.inf:
        assert built == math.inf
    elif alike(case.request, case.shape):
        one = len(case.request.topology.fleet.clusters) == 1
        assert fastest * (1 - 1e-9) <= built <= fastest * (1 + 1e-9 if one else 1.10)


def test_a_pinned_pp_is_kept_and_bounded(case):
    pp = 1 + case.request.workload.global_batch_size % 3
    found = answers(case.request, case.shape, pp)
    assert all(len(assignment.stages) == pp for assignment in found)
    fastest, _ = least(case.prices, lambda stages: len(stages) == pp and growing(stages))
    assert min((a.bound for a in found), default=math.inf) <= fastest * (1 + 1e-6)


def test_what_an_assignment_says_of_itself_is_so(case):
    room = {c.name: slots(c, case.shape.tp) // case.shape.dp for c in case.request.clusters()}
    for assignment in case.answers:
        assert assignment.proved
        assert assignment.bound <= assignment.seconds * (1 + 1e-9)
        names = [name for name, _ in assignment.stages]
        assert sum(layers for _, layers in assignment.stages) == case.request.workload.model.layers
        assert all(names.count(name) <= room[name] for name in names)
        assert len([name for name, _ in itertools.groupby(names)]) == len(set(names)), "a cluster's stages stand together"
        assert case.prices[assignment.stages] < math.inf, "the memory of the model is the memory of the plan"


@pytest.mark.parametrize("seed", after(4, range(2, 26, 2), last=7))
def test_a_cutoff_below_the_optimum_leaves_nothing_and_above_it_changes_nothing(seed):
    question, shape = drawn(seed)
    free = answers(question, shape)
    if free:
        best = min(assignment.seconds for assignment in free)
        assert answers(question, shape, cutoff=best * 0.999) == []
        above = min(assignment.seconds for assignment in answers(question, shape, cutoff=best * 1.01))
        assert above == pytest.approx(best, rel=1e-6, abs=2e-6), "but for the tolerance of the solver"


# faults that brute force finds


@pytest.mark.parametrize("seed", after(2, [61, 132, 306, 505, 600], last=3))
def test_no_pipeline_is_faster_than_the_bound_even_if_the_stage_at_a_border_is_small(seed):
    """(b, 2) (b, 2) (b, 1) | (a, 1): the stage that waits for the messages over the border should be the smallest."""
    question, shape = drawn(seed)
    assert min(assignment.bound for assignment in answers(question, shape)) <= fastest_pipeline(question, shape, growing)[0] * (
        1 + 1e-6
    )


def test_no_pipeline_is_faster_than_the_bound_even_if_nodes_are_joined_faster_than_their_devices():
    """Messages between stages 0 and 1 stay in the node and are slow; those between stages 1 and 2 leave it and are fast."""
    spec = make.device(speed=1e9)
    nic, wire = make.nic(bandwidth=1e8), make.wire(bandwidth=1e6)
    machines = make.fleet(make.cluster(nodes=2, devices=2, nics=(nic,), spec=spec, intra_node=wire))
    question = request(machines, make.model(3), 6)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    assert min(assignment.bound for assignment in answers(question, shape)) <= fastest_pipeline(question, shape)[0] * (1 + 1e-6)


def test_the_bound_holds_for_steps_of_a_fraction_of_a_millisecond():
    """The solver's tolerances are absolute (1e-6): seconds must not be its unit where a step takes 1e-4 of them."""
    spec = make.device(speed=3e13, memory_bandwidth=3e12)
    fast = make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=3e9),), spec=spec)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    for layers, batch in itertools.product((2, 5, 8), (2, 3, 8)):
        question = request(make.fleet(fast), make.model(layers), batch)
        bound = min(assignment.bound for assignment in answers(question, shape))
    bound = min(assignment.bound for assignment in answers(question, shape))
    assert bound <= fastest_pipeline(question, shape, growing)[0] * (1 + 1e-6)


def along(order: str, pp: int):
    """Whether a pipeline of so many stages stands on clusters in this order, some of them left out."""

    def kept(stages: tuple[tuple[str, int], ...]) -> bool:
        names = [name for name, _ in itertools.groupby(name for name, _ in stages)]
        return len(stages) == pp and growing(stages) and names == [name for name in order if name in names]

    return kept


@pytest.mark.parametrize("pp", [2, 3, 4])
def test_the_bound_of_an_order_holds_for_one_last_stage_behind_a_slow_border(pp):
    """What the last stage waits for its last gradient to leave is over the border, and is not part of the way back."""
    fast, slow = make.nic(bandwidth=1e9), make.nic("ethernet", 1e6)
    alone = make.cluster("a", 1, 1, (slow,), make.device("chip-a", 5e9, 1e9))
    many = make.cluster("b", 3, 1, (fast, slow), make.device("chip-b", 5e9, 1e9))
    machines = make.fleet(alone, many, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),))
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    for layers, batch in itertools.product((4, 6), (1, 3)):
        question = request(machines, make.model(layers), batch)
        context = PlanningContext(question)
        for order in orders(context, node_classes(context, shape)):
            found = solve(context, order, (pp, pp), NEVER, NODES, TimeLimit(NO_LIMIT))
            fastest, _ = fastest_pipeline(question, shape, along("".join(option.cluster.name for option in order), pp))
            assert found is not None
            assert found.bound <= fastest * (1 + 1e-6)


def test_the_bound_holds_where_later_stages_lie_better_on_their_nodes_than_the_first():
    """Four replicas on nodes of three devices: 3 + 1 for the first stage, 2 + 2 for the second, whose sums are faster."""
    spec, nic = make.device(speed=5e9, memory_bandwidth=1e9), make.nic(bandwidth=2e7, latency=3e-3)
    machines = make.fleet(
        make.cluster(nodes=4, devices=3, nics=(nic,), spec=spec, intra_node=make.wire(bandwidth=2e8, latency=3e-3))
    )
    shape = Shape(1, 4, 1, "none", "1f1b", 1, 0)
    for layers, batch in itertools.product((3, 4, 5), (4, 8, 24)):
        question = request(machines, make.model(layers, 192), batch)
        for pp in (2, 3):
            fastest, _ = fastest_pipeline(question, shape, lambda stages, pp=pp: len(stages) == pp and growing(stages))
            assert min(assignment.bound for assignment in answers(question, shape, pp)) <= fastest * (1 + 1e-6)


@pytest.mark.parametrize("vpp", [2, 3])
def test_the_bounds_hold_for_interleaved_stages(vpp):
    machines = make.fleet(make.cluster(nodes=3, spec=make.device(speed=1e9)))
    for layers, batch in itertools.product(range(4, 9), (6, 12)):
        question, shape = request(machines, make.model(layers, vocab=24), batch), Shape(1, 1, 1, "none", "interleaved", vpp, 1)
        fastest, _ = fastest_pipeline(question, shape, lambda stages: len(stages) > 1 and growing(stages))
        context = PlanningContext(question)
        assert min((a.bound for a in answers(question, shape)), default=math.inf) <= fastest * (1 + 1e-6)
        assert quick_bound(context, shape, node_classes(context, shape)) <= fastest * (1 + 1e-6)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
@pytest.mark.parametrize("nodes", [(5,), (3, 1)])
def test_the_bounds_hold_where_the_backward_is_split(schedule, nodes):
    nics = (make.nic(bandwidth=1e8), make.nic("ethernet", 1e8))
    clusters = [
        make.cluster(name, nodes=count, nics=nics, spec=make.device(f"chip-{name}", speed, memory=taken() + 2e7))
        for name, count, speed in zip("ab", nodes, (1e9, 2e9), strict=False)
    ]
    trunks = (Trunk(("a", "b"), "ethernet", 1e7, 1e-3),) if len(nodes) > 1 else ()
    machines, shape = make.fleet(*clusters, trunks=trunks), Shape(1, 1, 1, "none", schedule, 1, 1)
    for layers, batch in itertools.product((3, 5), (2, 8)):
        question = request(machines, make.model(layers, vocab=24), batch)
        context = PlanningContext(question)
        priced = prices(question, shape)
        fastest, _ = least(priced, growing)
        assert min((a.bound for a in answers(question, shape)), default=math.inf) <= fastest * (1 + 1e-6)
        assert quick_bound(context, shape, node_classes(context, shape)) <= least(priced)[0] * (1 + 1e-9)
        for pp in (2, 4):
            longer, _ = least(priced, lambda stages, pp=pp: len(stages) == pp and growing(stages))
            assert min((a.bound for a in answers(question, shape, pp)), default=math.inf) <= longer * (1 + 1e-6)


# what the answers look like


def test_the_first_of_many_stages_holds_most_microbatches_and_so_fewest_layers():
    """Stage 0 of four holds four microbatches, stage 3 one: where activations fill the memory, later stages are larger."""
    shaped, shape = make.model(8, vocab=24), Shape(1, 1, 1, "none", "1f1b", 1, 1)

    def question(room: float) -> Request:
        machines = make.fleet(make.cluster(nodes=4, spec=make.device(speed=1e9, memory=taken() + room)))
        return request(machines, shaped, 16, seq_len=1024)

    def splits(room: float) -> list[int] | None:
        found = answers(question(room), shape, pp=4)
        return [layers for _, layers in found[0].stages] if found else None

    assert splits(1e9) == [2, 2, 2, 2]
    assert splits(22e6) is None
    assert splits(23e6) == [1, 1, 2, 4]
    of_four = lambda stages: len(stages) == 4  # noqa: E731
    assert fastest_pipeline(question(22e6), shape, of_four)[0] == math.inf
    assert [layers for _, layers in fastest_pipeline(question(23e6), shape, of_four)[1]] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("speeds", "split"), [((2e9, 2e9), (6, 6)), ((4e9, 2e9), (8, 4)), ((1e9, 2e9), (4, 8)), ((5e9, 1e9), (10, 2))]
)
def test_layers_follow_the_speed_of_the_class(speeds, split):
    clusters = [
        make.cluster(name, nics=(make.nic("ethernet", 1e9),), spec=make.device(f"chip-{name}", speed))
        for name, speed in zip("ab", speeds, strict=True)
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question, shape = request(machines, make.model(12, vocab=24), 64), Shape(1, 1, 1, "none", "1f1b", 1, 1)
    best = min(answers(question, shape, pp=2), key=lambda assignment: assignment.seconds)
    assert dict(best.stages) == dict(zip("ab", split, strict=True))


def test_stages_beside_a_slow_border_get_fewer_layers():
    """A message over the border lasts as long as two layers: the stages inside carry those layers instead."""
    nics = (make.nic(bandwidth=1e9), make.nic("ethernet", 1e9))
    clusters = (
        make.cluster("a", 2, nics=nics, spec=make.device(speed=1e9)),
        make.cluster("b", 2, nics=nics, spec=make.device(speed=1e9)),
    )
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)

    def split(bandwidth: float) -> list[int]:
        machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", bandwidth, 0.0),))
        found = answers(request(machines, make.model(16, vocab=24), 64), shape, pp=4)
        return [layers for _, layers in min(found, key=lambda assignment: assignment.seconds).stages]

    assert split(1e9) == [4, 4, 4, 4]
    assert split(1.2e5)[1] < 4 < split(1.2e5)[0], "the stage before the border; what comes back over it is not modelled"
