"""The Python API behind the command line: load, plan, compare, simulate, explain. One short function each."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from holmes_sim import attention_and_experts, conflicts, kept_ranks, requirements, targets
from holmes_sim.attention_and_experts import SplitSearch
from holmes_sim.beyond import Beyond, BeyondSearch
from holmes_sim.conflicts import Price, Required
from holmes_sim.pins import Cancel, Pins, cancelled_by, pinned
from holmes_sim.results import Planned, Simulated
from holmes_sim.unlike_replicas import UnlikeReplicas
from holmes_sim.unlike_search import UnlikeSearch
from planner import api
from planner.api import Row
from planner.costs.context import PlanningContext
from planner.diagnosis.reasons import verdicts
from planner.progress import Progress
from planner.request import Request, Wishes
from sim.engine import symmetry
from sim.engine.engine import simulate as simulate_step
from sim.engine.timeline import Timeline, from_json
from sim.errors import Infeasible, PlanError, TopologyError
from sim.formats import adapter_facts, documents, planfile, profile, routing_facts, topology
from sim.formats.suggestions import suggestion
from sim.hardware.stack import DEFAULT
from sim.hardware.topology import Topology
from sim.kernels import compute
from sim.plan.plan import Plan
from sim.results.explain import Explanation
from sim.results.explain import explain as account
from sim.results.report import pipeline_ranks, predict
from sim.units import Seconds
from sim.workload.workload import Workload

BASELINES = ("megatron", "holmes")
"""Published strategies that every plan is compared with."""
EXPLAINED_LAYOUTS = 24
"""Number of layouts with the least quick estimates for which --explain gives a reason. Guess; more takes longer."""


def topologies_folder() -> Path:
    """Folder of the shipped topologies: inside the package if installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def shipped_topologies() -> tuple[str, ...]:
    """Names of the shipped topologies, sorted; a name in a subfolder contains the folder (`peers/amp-16`)."""
    folder = topologies_folder()
    return tuple(sorted(path.relative_to(folder).as_posix().removesuffix(".yaml") for path in folder.rglob("*.yaml")))


def topology_path(name: str | Path) -> Path:
    """The file of a topology: of a shipped one that is given by name, else the given path."""
    shipped = topologies_folder() / f"{name}.yaml"
    return shipped if str(name) in shipped_topologies() and not Path(name).exists() else Path(name)


def load(name: str | Path, measured: str | Path | None = None) -> Topology:
    """Read a topology from a file, or a shipped one by its name, with an optional profile (name or file).

    Raises TopologyError.
    """
    path = topology_path(name)
    if not path.exists() and not path.suffix:
        near = suggestion(str(name), shipped_topologies())
        shown = "; `holmes-sim list topologies` shows them" if near.startswith("; known") else near
        raise TopologyError(f"{name}: no such file, and no shipped topology has this name{shown}")
    found = topology.load(path)
    requirements.check_file(found, path)
    found = kept_ranks.read(found, path.parent)
    return topology.profiled(found, profile.load(measured)) if measured is not None else found


def plan_text(path: str | Path) -> str:
    """Text of a file that should be a plan. Raises PlanError, which names the command that makes one where there is no file."""
    if Path(path).exists():
        return documents.read_text(path, PlanError)
    if str(path) in shipped_topologies():
        raise PlanError(f"{path}: this is a topology; a plan is expected (`holmes-sim plan {path} -o plan.json` makes one)")
    raise PlanError(f"{path}: no such file; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan")


def read_plan(path: str | Path, measured: str | Path | None = None) -> Plan:
    """Read a plan file; `measured`, a profile (name or file), replaces the profile of the plan.

    Raises PlanError, TopologyError.
    """
    return with_profile(planfile.from_text(str(path), plan_text(path)), measured)


def with_profile(given: Plan, measured: str | Path | None) -> Plan:
    """The plan with its profile replaced by `measured` (name or file), or unchanged if that is None. Raises TopologyError."""
    if measured is None:
        return given
    return replace(given, topology=topology.profiled(given.topology, profile.load(measured)))


def read(path: str | Path) -> Plan | Timeline:
    """Read a plan or a timeline, whichever the file contains. Raises PlanError, TimelineError, TopologyError."""
    text = plan_text(path)
    return from_json(text, str(path)) if '"traceEvents"' in text else planfile.from_text(str(path), text)


def software(given: Plan) -> tuple[str, ...]:
    """The software stack of the topology in one line; empty if it is the default one."""
    if given.topology.stack == DEFAULT:
        return ()
    return (f"Software stack {given.topology.facts()['stack']['name']}, not the default one.",)


def rests_on(given: Plan) -> tuple[str, ...]:
    """Source of the compute seconds of a plan (profile or formulas), one line per device type; empty without a profile."""
    if all(spec.profile is None for spec in given.specs):
        return ()
    return tuple(f"Compute of {spec.name}: {compute.rests_on(spec, given.workload, given.config)}." for spec in given.specs)


def workload_of(
    where: Topology, model: str | None = None, global_batch_size: int | None = None, seq_len: int | None = None
) -> Workload:
    """The workload of a topology, with the given values in place of its own.

    Raises TopologyError if the topology has no workload and a value is missing.
    """
    own = where.workload
    if own is None and (model is None or global_batch_size is None or seq_len is None):
        raise TopologyError(
            f"topology {where.name} has no workload; give --model, --global-batch-size and --seq-len, "
            f"or add a workload to the file"
        )
    whole = topology.load_model(model) if model is not None else _of(own).model
    size = global_batch_size if global_batch_size is not None else _of(own).global_batch_size
    tokens = seq_len if seq_len is not None else _of(own).seq_len
    if own is None:
        return Workload(whole, size, tokens)
    adapter_facts.check(own.adapter, whole, own.precision)
    routing_facts.check(own.routing, whole)
    return replace(own, model=whole, global_batch_size=size, seq_len=tokens, held=())


def _of(workload: Workload | None) -> Workload:
    assert workload is not None
    return workload


def plan(
    where: Topology,
    workload: Workload | None = None,
    strategy: str = api.DEFAULT,
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    explain: bool = False,
    objective: str = "step-time",
    watch: Callable[[Progress], None] = lambda state: None,
    target: str = targets.ANY,
    cancel: Cancel | None = None,
    **pins: Unpack[Pins],
) -> Planned:
    """Plan a topology, and plan it with the published strategies `BASELINES` for comparison.

    `pins` fix dimensions, such as tp=2; `wishes` has the same as one object.

    `objective` is step-time, cost (USD per token; every device needs a price) or energy (joules per token; every device needs
    watts). `time_limit` is in seconds. With `explain`, the result says why other layouts are slower or do not fit, and what
    each requirement of the topology (`holmes_sim.requirements`) costs, in the time that is left. `progress`
    receives status lines, and `watch` the states of a search of strategy certified for the step time. `target` is a launch
    target (`holmes_sim.exporters`) that must be able to run the plan, and those of the published strategies; "any" for any
    training framework, "none" for none of them, which is what another strategy than certified always plans for.

    Ctrl-C ends the search with the best plan so far, and so does `cancel`, such as a threading.Event that another thread sets.
    Raises Infeasible, OptionError, TopologyError; KeyboardInterrupt if the search ended so before a plan was found.
    """
    started = time.perf_counter()
    wishes, progress = pinned("plan", wishes, pins), cancelled_by(cancel, progress)
    target = targets.of_strategy(strategy, target)
    request = requirements.request(where, workload or workload_of(where), wishes, time_limit, target)
    required = Required(where, request.workload, wishes, target)
    fastest = objective == "step-time"
    search = BeyondSearch(request, fastest)
    unlike_search = UnlikeSearch(request, fastest and strategy == api.DEFAULT, search)
    context = PlanningContext(request, unlike_search.polled(progress), watch=watch, beside=BASELINES)
    split_search = SplitSearch(request, fastest, context)

    def first_plan(plan: Plan) -> Seconds:
        spared = unlike_search.first_plan(plan)
        split_search.run()
        return spared

    context.spared = first_plan
    with search, unlike_search:
        try:
            found, others = api.plan_for(objective, request, strategy, context)
        except Infeasible as error:
            if not requirements.written(where):
                raise
            raise conflicts.explained(required, error, context.limit.seconds_left, progress) from None
        split_search.finish()
        rows = others + tuple(_baseline(request, name, context) for name in BASELINES if name != strategy)
        timeline, effort = context.timelines.of(found), copy.deepcopy(context.effort)  # reasons below price pipelines, too
        faster = _beyond(search, found, context.limit.seconds_left - unlike_search.spared(found), context)
        replicas = _unlike_replicas(unlike_search, found, faster, context)
    seconds = time.perf_counter() - started
    try:
        reasons = tuple(verdicts(context, EXPLAINED_LAYOUTS)) if explain and not context.interrupted else ()
    except KeyboardInterrupt:
        context.interrupted, reasons = True, ()
    ranks, costs = pipeline_ranks(found, timeline), list[Price]()
    try:
        if explain and not context.interrupted and requirements.written(where):
            costs.extend(conflicts.prices(required, required.items(), context.limit.seconds_left, progress, found))
    except KeyboardInterrupt:
        context.interrupted = True
    split = attention_and_experts.compared(split_search.found, found)
    more = faster, split, replicas
    return Planned(found, timeline, ranks, rows, seconds, context.interrupted, reasons, effort, tuple(costs), *more)


def _beyond(search: BeyondSearch, found: Plan, seconds: Seconds, context: PlanningContext) -> Beyond | None:
    """A faster plan that no framework commonly runs, if there is time left: so many seconds."""
    if context.interrupted:
        return None
    try:
        return search.compared(found, seconds, context)
    except KeyboardInterrupt:
        context.interrupted = True
        return None


def _unlike_replicas(
    search: UnlikeSearch, found: Plan, faster: Beyond | None, context: PlanningContext
) -> UnlikeReplicas | None:
    """A plan of unlike pipelines that is faster than both plans of alike replicas that run, if there is time left."""
    if context.interrupted:
        return None
    try:
        return search.compared(found, faster, context.limit.seconds_left, context.progress)
    except KeyboardInterrupt:
        context.interrupted = True
        return None


def _baseline(request: Request, name: str, context: PlanningContext) -> Row:
    """The result of a strategy that a plan is compared with; not planned once the search is interrupted or out of time."""
    if not context.answers(name):
        if context.interrupted:
            return Row(name, None, "not planned: interrupted")
        if context.limit.is_up():
            return Row(name, None, "not planned: the time limit ended the search")
    try:
        return api.row(request, name, context)
    except KeyboardInterrupt:
        context.interrupted = True
        return Row(name, None, "not planned: interrupted")


def simulate(given: Plan) -> Simulated:
    """Simulate one step of a plan."""
    started = time.perf_counter()
    folded = symmetry.fold(given)
    timeline = simulate_step(given, folded)
    seconds = time.perf_counter() - started
    prediction = predict(given, timeline)
    return Simulated(given, timeline, prediction, pipeline_ranks(given, timeline), seconds, len(folded.representatives))


def explain(run: Simulated) -> Explanation:
    """Explain the step time of a simulated step: seconds by stage, and the critical path."""
    return account(run.plan, run.timeline)
