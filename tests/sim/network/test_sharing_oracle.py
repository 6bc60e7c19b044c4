"""The flow network against two oracles that share no code with it: linear programmes after the definition, and SimGrid.

Max-min fair rates by definition: the smallest rate is as large as can be; flows that cannot go faster without slowing another
down to less than that keep it; the others go on (Bertsekas and Gallager, Data Networks, section 6.5.2). That is a sequence of
linear programmes. Around them a loop that moves bytes from one start or arrival to the next.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pulp
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network.sharing import Flow, Network, Use, fair_rates

PLAYER = Path(__file__).with_name("simgrid_player.py")
SCENES_IN_SIMGRID = 200
ANY_WEIGHTS = (0.25, 1.0, 1.0, 1.3, 8.0)
WHOLE_WEIGHTS = (1.0, 1.0, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """Links, and flows that start on them."""

    capacities: tuple[float, ...]
    flows: tuple[tuple[float, Use, int], ...]
    """(start, links with weights, bytes)"""


def any_scene(seed: int, weights: tuple[float, ...]) -> Scene:
    """Up to twelve flows over up to seven links; capacities, starts and sizes that tie and others that do not."""
    random = Random(seed)
    links = random.randint(1, 7)
    capacities = tuple(random.choice([1.0, 2.5, 10.0, 40.0, round(random.uniform(1, 100), 2)]) for _ in range(links))

    def flow() -> tuple[float, Use, int]:
        start = random.choice([0.0, 0.0, 1.0, 2.5, round(random.uniform(0, 20), 3)])
        crossed = random.sample(range(links), random.randint(1, min(4, links)))
        return start, tuple((link, random.choice(weights)) for link in crossed), random.choice([1, 7, random.randint(1, 500)])

    return Scene(capacities, tuple(flow() for _ in range(random.randint(1, 12))))


scenes = st.integers(0, 2**32).map(lambda seed: any_scene(seed, ANY_WEIGHTS))


def simulated(scene: Scene, check: Callable[[Network, list[Flow]], None] = lambda network, flows: None) -> list[float]:
    """When each flow arrives in our network; `check` gets the flows in progress whenever rates may have changed."""
    env = simpy.Environment()
    network = Network(env, scene.capacities)
    times = [0.0] * len(scene.flows)
    started: list[Flow] = []

    def changed() -> None:
        check(network, [flow for flow in started if not flow.triggered])

    def send(index: int, start: float, use: Use, nbytes: int) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        flow = network.start(use, nbytes)
        started.append(flow)
        changed()
        yield flow
        times[index] = env.now
        changed()

    for index, flow in enumerate(scene.flows):
        env.process(send(index, *flow))
    env.run()
    return times


def rates_by_definition(uses: dict[int, Use], capacities: tuple[float, ...]) -> dict[int, float]:
    """Max-min fair rates of numbered flows: raise the smallest rate, freeze who cannot have more, repeat."""
    frozen: dict[int, float] = {}
    while len(frozen) < len(uses):
        floor = largest(None, uses, capacities, frozen, 0.0)
        stuck = [
            flow for flow in uses if flow not in frozen and largest(flow, uses, capacities, frozen, floor) <= floor * (1 + 1e-7)
        ]
        assert stuck != []
        frozen |= dict.fromkeys(stuck, floor)
    return frozen


def largest(
    wanted: int | None, uses: dict[int, Use], capacities: tuple[float, ...], frozen: dict[int, float], floor: float
) -> float:
    """The most that one flow can have (None: the slowest that is not frozen) while nobody gets less than `floor`."""
    problem = pulp.LpProblem("rates", pulp.LpMaximize)
    rate = {flow: problem.add_variable(f"rate_{flow}", frozen.get(flow, floor), frozen.get(flow)) for flow in uses}
    for link, capacity in enumerate(capacities):
        crossing = [(rate[flow], weight) for flow, use in uses.items() for at, weight in use if at == link]
        problem.addConstraint(pulp.LpAffineExpression(crossing) <= capacity, f"link_{link}")
    if wanted is None:
        goal = problem.add_variable("smallest_rate", 0.0)
        for flow in uses.keys() - frozen.keys():
            problem.addConstraint(goal <= rate[flow], f"floor_{flow}")
    else:
        goal = rate[wanted]
    problem.setObjective(1.0 * goal)
    problem.solve(pulp.HiGHS(msg=False, threads=1))
    assert problem.sol_status == pulp.LpSolutionOptimal
    return float(goal.varValue)


def arrivals_by_definition(scene: Scene) -> list[float]:
    """When each flow arrives: rates hold from one start or arrival to the next."""
    left = {flow: float(nbytes) for flow, (_, _, nbytes) in enumerate(scene.flows)}
    starts = {flow: start for flow, (start, _, _) in enumerate(scene.flows)}
    times = [0.0] * len(scene.flows)
    now = 0.0
    while left:
        active = {flow: scene.flows[flow][1] for flow in left if starts[flow] <= now}
        rates = rates_by_definition(active, scene.capacities)
        ends = {flow: now + left[flow] / rates[flow] for flow in active}
        until = min([*ends.values(), *(start for start in starts.values() if start > now)])
        for flow in active:
            left[flow] -= rates[flow] * (until - now)
            if ends[flow] <= until * (1 + 1e-9):  # those that end together but for rounding
                times[flow] = ends[flow]
                del left[flow]
        now = until
    return times


def test_the_definition_gives_the_textbook_shares() -> None:
    """Flow 0 crosses links of capacity 1 and 2: it gets 1/2, its neighbour 1/2 and the flow on the wide link 3/2."""
    uses = {0: ((0, 1.0), (1, 1.0)), 1: ((0, 1.0),), 2: ((1, 1.0),)}
    assert rates_by_definition(uses, (1.0, 2.0)) == pytest.approx({0: 0.5, 1: 0.5, 2: 1.5}, rel=1e-9)


@given(scene=scenes)
def test_flows_arrive_at_the_times_of_the_definition_of_fairness(scene: Scene) -> None:
    assert simulated(scene) == pytest.approx(arrivals_by_definition(scene), rel=1e-6)


@given(scene=scenes)
def test_shares_are_max_min_fair_at_every_moment(scene: Scene) -> None:
    """The certificate, on the rates in force: no link above its capacity; each flow has a full one where nobody is faster."""

    def check(network: Network, flows: list[Flow]) -> None:
        crossing = [[flow for flow in flows if link in dict(flow.use)] for link in range(len(scene.capacities))]
        fastest = [max((flow.rate for flow in on), default=0.0) for on in crossing]
        full = [network.load(link) >= capacity * (1 - 1e-9) for link, capacity in enumerate(scene.capacities)]
        assert all(network.load(link) <= capacity * (1 + 1e-9) for link, capacity in enumerate(scene.capacities))
        for flow in flows:
            assert any(full[link] and flow.rate >= fastest[link] * (1 - 1e-9) for link, _ in flow.use)

    simulated(scene, check=check)


@given(scene=scenes)
def test_current_rates_are_those_of_a_new_computation(scene: Scene) -> None:
    """However many flows arrived and left since a flow got its rate."""

    def check(network: Network, flows: list[Flow]) -> None:
        expected = fair_rates(flows, dict(enumerate(scene.capacities)))
        assert {flow: flow.rate for flow in expected} == pytest.approx(expected, rel=1e-12)

    simulated(scene, check=check)


@given(scene=scenes)
def test_flows_that_are_not_joined_need_no_new_rates(scene: Scene) -> None:
    """To set the capacity of a link to what it is gives new rates to all flows that share links with it, also indirectly."""

    def renew(network: Network, flows: list[Flow]) -> None:
        for link, capacity in enumerate(scene.capacities):
            network.set_capacity(link, capacity)

    assert simulated(scene) == pytest.approx(simulated(scene, renew), rel=1e-9)


def python_with_simgrid() -> str:
    """A Python that has SimGrid's module: ours or the system's (Debian: python3-simgrid). Skips where there is none."""
    for python in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import simgrid"], capture_output=True).returncode == 0:
            return python
    pytest.skip("SimGrid's Python module is not installed (Debian and Ubuntu: apt install python3-simgrid)")


@pytest.mark.parametrize("weights", [(1.0,), WHOLE_WEIGHTS], ids=["unweighted", "weighted"])
def test_flows_arrive_at_the_times_of_simgrid(weights: tuple[float, ...]) -> None:
    python = python_with_simgrid()
    chosen = [any_scene(seed, weights) for seed in range(SCENES_IN_SIMGRID)]
    said = subprocess.run(
        [python, str(PLAYER)],
        input=json.dumps([(scene.capacities, scene.flows) for scene in chosen]),
        capture_output=True,
        text=True,
        check=True,
    )
    for scene, times in zip(chosen, json.loads(said.stdout), strict=True):
        assert simulated(scene) == pytest.approx(times, rel=1e-6), scene
