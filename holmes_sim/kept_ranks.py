"""The plan whose ranks a requirement keeps where they are: its file, read into the topology, and then for the planner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner import kept_ranks as planned
from sim.errors import HolmesError, OptionError
from sim.formats import planfile
from sim.formats.config_facts import config_values
from sim.formats.documents import KeyPath
from sim.formats.edits import edited
from sim.formats.kept_facts import KeptPlan, kept_facts
from sim.formats.require_facts import RequireFacts
from sim.hardware.cluster import parse_device
from sim.hardware.topology import Topology
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def read(where: Topology, folder: Path) -> Topology:
    """The topology with the facts of the plan whose file its requirements name; a path is relative to `folder`, or else to the
    folder of today. Unchanged where they name none. Raises OptionError, in one line."""
    given = (where.facts().get("require") or {}).get("ranks")
    keep = given.get("keep") if isinstance(given, dict) else None
    if not isinstance(keep, str):
        return where
    try:
        return edited(where, {"require.ranks.keep": _facts(where, keep, folder)})
    except OptionError as error:
        raise OptionError(f"require.ranks.keep: {error}") from None


def faults(where: Topology, given: object, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of a plan's file that cannot be read, or is one of another fleet."""
    keep = given.get("keep") if isinstance(given, dict) else None
    if isinstance(keep, str):
        try:
            _facts(where, keep, folder)
        except OptionError as error:
            yield ("ranks", "keep"), str(error)


def of(facts: RequireFacts, workload: Workload) -> planned.KeptRanks | None:
    """The ranks that are kept. Raises OptionError where they hold another model."""
    given = facts.ranks.keep if facts.ranks is not None else None
    if not isinstance(given, KeptPlan):
        return None
    layers = max((stage.layers[1] for stage in given.stages), default=0)
    if (given.model, layers) != (workload.model.name, workload.model.layers):
        raise OptionError(
            f"require.ranks.keep: {given.name} has {layers} layers of {given.model}, but {workload.model.name} with "
            f"{workload.model.layers} is planned; give a plan of this model"
        )
    config = ParallelConfig(**config_values(given.config, workload.routing, workload.model))
    devices = tuple(parse_device(text) if text is not None else None for text in given.placement)
    return planned.KeptRanks(given.name, given.model, config, tuple(one.stage() for one in given.stages), devices)


def _facts(where: Topology, keep: str, folder: Path) -> dict[str, Any]:
    path = folder / keep if (folder / keep).exists() else Path(keep)
    if not path.is_file():
        raise OptionError(f"{keep}: no such file; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan")
    try:
        plan = planfile.load(path)
    except HolmesError as error:
        raise OptionError(str(error).splitlines()[0]) from None
    return kept_facts(plan, path.name, where.fleet)
