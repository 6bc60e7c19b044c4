"""Plans one scenario of a study: task -> row with the numbers of the plan, or the reason why there is none.

Tasks and rows are plain data, so they can be sent between processes and machines and written to files.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from typing import Any, TypeAlias

from holmes_sim import islands, plan_numbers, requirements, targets
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.sweeping.options import OptionFacts
from holmes_sim.sweeping.study import Scenario
from planner import api
from planner.costs.context import PlanningContext
from planner.islands.allowed_sync import EXACT
from sim import __version__
from sim.errors import HolmesError, Infeasible
from sim.formats import documents
from sim.formats.topology import from_document, written
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import TERA

Row: TypeAlias = dict[str, Any]

PREDICTED = (
    "step_s", "samples_per_s", "tokens_per_s", "tflops_per_device", "mfu", "bubble_fraction", "exposed_communication_s",
    "upper_bound_fraction", "usd_per_token", "joules_per_token",
)  # fmt: skip
"""Columns taken from the prediction of the plan."""
CHOSEN = ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size", "schedule", "zero_stage")
"""Columns taken from the parallel configuration of the plan, beside its recomputation."""
PLANNED, INFEASIBLE, WRONG, FAILED, INTERRUPTED = "planned", "infeasible", "wrong", "failed", "interrupted"
"""Status of a scenario.

infeasible: no plan meets the demands. wrong: the demands, or demands and topology, contradict each other. failed: an error of
this program or of the machine; the scenario is planned again when the sweep continues. interrupted: stopped by Ctrl-C, without
result.
"""

_ONE_AT_A_TIME = threading.Lock()
"""A process plans one scenario at a time: threads would share its CPU time, and the search has a time limit in wall time."""


@dataclass(frozen=True, slots=True)
class Task:
    """A scenario for a worker: the text of a topology file with its workload, options of the plan, version of the sender.

    `digest` is the hash of these three: equal tasks have equal results.
    """

    digest: str
    name: str
    facts: str
    options: str
    version: str


def task_of(scenario: Scenario) -> Task:
    """The task of a scenario without fault."""
    assert scenario.topology is not None
    facts = json.dumps(written(scenario.topology), sort_keys=True)
    options = scenario.options.model_dump_json()
    digest = hashlib.sha256("\n".join((__version__, facts, options)).encode()).hexdigest()[:32]
    return Task(digest, scenario.topology.name, facts, options, __version__)


def run_task(task: Task) -> tuple[str, Row]:
    """(digest, row) of a task. Raises HolmesError if this process has another version of holmes-sim than the sender."""
    if task.version != __version__:
        raise HolmesError(f"a worker has holmes-sim {__version__}, the sweep has {task.version}; install the same version")
    with _ONE_AT_A_TIME:
        begun = time.perf_counter()
        row = _row(task)
        return task.digest, row | {"planning_s": time.perf_counter() - begun}


def _row(task: Task) -> Row:
    """The row of a task; errors become rows without a plan."""
    options = OptionFacts.model_validate_json(task.options)
    try:
        where = from_document(documents.parse(task.name, task.facts))
        return _row_with_sync(where, options) if options.sync != EXACT else _exact_row(where, options)
    except Infeasible as error:
        return row_without_plan(INFEASIBLE, str(error))
    except HolmesError as error:
        return row_without_plan(WRONG, str(error))
    except Exception as error:  # the other scenarios continue; the row says what happened
        return row_without_plan(FAILED, f"{type(error).__name__}: {error}")


def _exact_row(where: Topology, options: OptionFacts) -> Row:
    """The row of the best plan without islands. Raises HolmesError."""
    assert where.workload is not None
    target = targets.of_strategy(options.strategy, options.target or targets.ANY)
    request = requirements.request(where, where.workload, options.wishes(), options.time_limit, target)
    context = PlanningContext(request)
    found, _ = api.plan_for(options.objective, request, options.strategy, context)
    return row_without_plan(INTERRUPTED, "") if context.interrupted else _planned(found, plan_numbers.of_plan(found))


def _row_with_sync(where: Topology, options: OptionFacts) -> Row:
    """The row of the best plan with the allowed sync strategies: of islands, or exact. Raises HolmesError."""
    target = options.target or targets.ANY
    answer = islands.search(where, None, options.sync, options.wishes(), options.time_limit, target)
    if answer.interrupted:
        return row_without_plan(INTERRUPTED, "")
    found, numbers = answer.best.plan, plan_numbers.of_answer(answer)
    return _planned(found, numbers) if isinstance(found, Plan) else _of_islands(found, numbers)


def row_without_plan(status: str, reason: str) -> Row:
    """The row of a scenario without a plan."""
    return {"status": status, "reason_if_none": "; ".join(reason.splitlines())}


def _planned(found: Plan, numbers: PlanNumbers) -> Row:
    """The row of an exact plan."""
    prediction = found.prediction
    assert isinstance(prediction, Prediction)
    return {
        **{name: getattr(prediction, name) for name in PREDICTED},
        **numbers.facts(),
        "gap": numbers.gap,
        "status": PLANNED,
        **_layout(found),
        "devices": found.config.world_size,
        "clusters": _clusters(found),
    }


def _of_islands(found: IslandsPlan, numbers: PlanNumbers) -> Row:
    """The row of a plan of islands: the parts of the layout that all islands have in common, and the clusters of each."""
    prediction = found.prediction
    assert prediction is not None
    layouts, devices = [_layout(island) for island in found.islands], sum(island.config.world_size for island in found.islands)
    common = {name: value for name, value in layouts[0].items() if all(other[name] == value for other in layouts)}
    return {
        **numbers.facts(),
        "samples_per_s": prediction.tokens_per_s / found.workload.seq_len,
        "tflops_per_device": prediction.tokens_per_s * found.workload.flops / found.workload.tokens / devices / TERA,
        "mfu": prediction.mfu,
        "gap": numbers.gap,
        "status": PLANNED,
        **common,
        "devices": devices,
        "clusters": " | ".join(map(_clusters, found.islands)),
    }


def _layout(found: Plan) -> Row:
    """The parallel configuration of a plan."""
    return {**{name: getattr(found.config, name) for name in CHOSEN}, "recompute": found.config.recomputation}


def _clusters(found: Plan) -> str:
    """The clusters of a plan: `ib + roce`."""
    return " + ".join(dict.fromkeys(device.cluster for device in found.placement))
