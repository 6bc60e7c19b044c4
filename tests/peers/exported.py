"""What is exported for a target: every plan of the corpus and of the features that it can express; and what is to be read."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holmes_sim import commands, exporters
from holmes_sim.launching import hosts
from holmes_sim.launching.folder import Launch
from sim.plan.plan import Plan
from sim.workload.model import Model
from tests import corpus, features

VERDICTS = Path(__file__).parent / "verdicts"
Plans = tuple[tuple[str, Plan], ...]
OURS = ("__main__", "reading", "exported", "launching")


def readers() -> list[str]:
    """Targets that have a reader here."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in OURS)


def plans(target: str, shipped: Plans) -> Iterator[tuple[str, Plan]]:
    """(name, plan) of the corpus, and of the features, also of those that are the target's own."""
    yield from shipped
    for feature in (*features.FEATURES, *features.OWN.get(target, ())):
        yield f"feature {feature.name}", features.plan_of(feature, features.schedule(target))


@functools.cache
def shipped() -> Plans:
    """(name, plan) of the corpus; strategies with the same plan of a topology share a name."""
    return tuple(_shipped())


def _shipped() -> Iterator[tuple[str, Plan]]:
    for topology in commands.shipped_topologies():
        same: dict[str, tuple[list[str], Plan]] = {}
        for strategy, plan in corpus.plans(topology) if corpus.file_of(topology).exists() else ():
            key = json.dumps([repr(plan.config), repr(plan.stages), repr(plan.placement)])
            same.setdefault(key, ([], plan))[0].append(strategy)
        for strategies, plan in same.values():
            yield f"{topology} {','.join(strategies)}", plan


def expressible(target: str, shipped: Plans) -> Iterator[tuple[str, Plan]]:
    """(name, plan) of every feature, and of every plan of `shipped`, that the target can express."""
    return ((name, plan) for name, plan in plans(target, shipped) if not any(exporters.unsupported(target, plan)))


def _parameters(model: Model) -> int:
    """Parameters of a model, with those of layers that predict further tokens, which are like its last one."""
    further = sum(kind.layer_parameters for _, kind in model.kinds(model.layers - 1, model.layers)) * model.mtp_layers
    return model.parameters + further


def facts(plan: Plan) -> dict[str, Any]:
    """What a reader may find: ranks of every group, layers of every stage, the host of every rank, batches."""
    config = plan.config
    found: dict[str, Any] = {
        "world_size": config.world_size,
        "layers": [stage.layers for stage in plan.stages],
        "first_layers": [stage.first for stage in plan.stages],
        "hosts": {str(rank): host.name for host in hosts.of_plan(plan) for rank in host.ranks},
        "microbatch_size": config.microbatch_size,
        "global_batch_size": plan.workload.global_batch_size,
        "parameters": _parameters(plan.workload.model),
    }
    if len(set(config.num_microbatches)) == 1:
        found["microbatches"] = config.num_microbatches[0]
    for kind in ("tp", "pp", "dp", "cp", "ep"):
        found[f"groups.{kind}"] = sorted(sorted(group.ranks) for group in plan.groups if group.kind == kind)
    if config.dp * config.cp > 1:
        pp_ranks, alike = range(config.world_size // (config.tp * config.dp * config.cp)), range(config.dp * config.cp)
        found["groups.gradients"] = sorted(
            sorted(config.rank(tp, index, pp_rank) for index in alike) for pp_rank in pp_ranks for tp in range(config.tp)
        )
    return found


def digest(launch: Launch) -> str:
    """Short name of all that is launched."""
    whole = hashlib.sha256()
    for name, file in sorted(launch.files.items()):
        content = file.content.encode() if isinstance(file.content, str) else file.content
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return whole.hexdigest()[:16]


def file_of(target: str) -> Path:
    """Where the verdicts of a target stand."""
    return VERDICTS / f"{target}.json"


def keep(target: str, kept: dict[str, Any]) -> None:
    """Write the verdicts of a target: one line an export."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(verdict)}" for name, verdict in kept["verdicts"].items())
    head = "".join(f'  "{key}": {json.dumps(kept[key])},\n' for key in ("date", "versions", "unread"))
    VERDICTS.mkdir(exist_ok=True)
    file_of(target).write_text(f'{{\n{head}  "verdicts": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")


def kept(target: str) -> dict[str, Any]:
    """The verdicts of a target."""
    found: dict[str, Any] = json.loads(file_of(target).read_text(encoding="utf-8"))
    return found
