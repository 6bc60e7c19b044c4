"""One scenario of a study -> its row: the plan's numbers, or why there is none. This is what workers do.

Tasks and rows are plain data, so that they travel between processes and machines and stand in files.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from typing import Any, TypeAlias

from holmes_sim.sweeping.options import OptionFacts
from holmes_sim.sweeping.study import Scenario
from planner import api
from planner.costs.context import PlanningContext
from planner.request import Request
from sim import __version__
from sim.errors import HolmesError, Infeasible
from sim.formats import documents
from sim.formats.topology import from_document, written
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction

Row: TypeAlias = dict[str, Any]

PREDICTED = (
    "step_s", "samples_per_s", "tokens_per_s", "tflops_per_device", "mfu", "bubble_fraction", "exposed_communication_s",
    "upper_bound_fraction", "usd_per_token", "joules_per_token",
)  # fmt: skip
CHOSEN = ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size", "schedule", "recompute", "zero_stage")
PLANNED, INFEASIBLE, WRONG, FAILED, INTERRUPTED = "planned", "infeasible", "wrong", "failed", "interrupted"
"""How a scenario ended. infeasible: no plan meets the demands; wrong: they contradict each other, or the topology; failed: by
an error of this program or of the machine, asked again when the sweep goes on; interrupted: by Ctrl-C, which is no answer."""

_ONE_AT_A_TIME = threading.Lock()
"""A process plans one scenario at a time: threads would share its time, and a search has so many seconds."""


@dataclass(frozen=True, slots=True)
class Task:
    """A scenario for a worker: a topology file's text with its workload, options of the plan, who asks.

    `digest` names all three: equal tasks have equal answers."""

    digest: str
    name: str
    facts: str
    options: str
    version: str


def task(scenario: Scenario) -> Task:
    """The task of a scenario that has no fault."""
    assert scenario.topology is not None
    facts = json.dumps(written(scenario.topology), sort_keys=True)
    options = scenario.options.model_dump_json()
    digest = hashlib.sha256("\n".join((__version__, facts, options)).encode()).hexdigest()[:32]
    return Task(digest, scenario.topology.name, facts, options, __version__)


def answer(asked: Task) -> tuple[str, Row]:
    """(digest, row) of a task. Raises HolmesError where this is another version of holmes-sim than the one that asks."""
    if asked.version != __version__:
        raise HolmesError(f"a worker has holmes-sim {__version__}, the sweep is of {asked.version}; install the same")
    with _ONE_AT_A_TIME:
        begun = time.perf_counter()
        row = _row(asked)
        return asked.digest, row | {"planning_s": time.perf_counter() - begun}


def _row(asked: Task) -> Row:
    options = OptionFacts.model_validate_json(asked.options)
    try:
        where = from_document(documents.parse(asked.name, asked.facts))
        assert where.workload is not None
        request = Request(where, where.workload, options.wishes(), options.time_limit)
        context = PlanningContext(request)
        found, _ = api.plan_for(options.objective, request, options.strategy, context)
    except Infeasible as error:
        return unanswered(INFEASIBLE, str(error))
    except HolmesError as error:
        return unanswered(WRONG, str(error))
    except Exception as error:  # one scenario of hundreds: the others go on, and the row says what happened
        return unanswered(FAILED, f"{type(error).__name__}: {error}")
    return unanswered(INTERRUPTED, "") if context.interrupted else _planned(found)


def unanswered(status: str, reason: str) -> Row:
    """The row of a scenario without a plan."""
    return {"status": status, "reason_if_none": "; ".join(reason.splitlines())}


def _planned(found: Plan) -> Row:
    promised = found.prediction
    assert isinstance(promised, Prediction)
    return {
        **{name: getattr(promised, name) for name in PREDICTED},
        "gap": found.certificate.gap if found.certificate else None,
        "status": PLANNED,
        **{name: getattr(found.config, name) for name in CHOSEN},
        "devices": found.config.world_size,
        "clusters": " + ".join(dict.fromkeys(device.cluster for device in found.placement)),
    }
