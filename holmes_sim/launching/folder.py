"""The folder of a launch: its files, and a README that explains the launch and lists assumptions."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holmes_sim import files
from holmes_sim.launching import environment, hosts
from sim.errors import HolmesError
from sim.formats import planfile
from sim.plan.plan import Plan

README, PLAN = "README.md", "plan.json"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a launch: its content, and a description without a full stop."""

    content: str | bytes
    about: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Output of an exporter: files by path in the folder, instructions (`how`, Markdown) and assumptions (`assumed`).

    `complete` adds the assumptions about hosts that the topology does not specify.
    """

    files: dict[str, File]
    how: str
    assumed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{len(self.files)} files: {', '.join(self.files)}"


def complete(plan: Plan, title: str, readers: str, launch: Launch) -> Launch:
    """The launch with the plan, all assumptions and its README added."""
    assumed = (*launch.assumed, *hosts.assumed(plan), *environment.assumed(plan))
    found = launch.files | {PLAN: File(planfile.to_json(plan), "the plan that was exported")}
    whole = Launch(found, launch.how, assumed)
    return Launch({README: File(_readme(plan, title, readers, whole), "this file"), **found}, launch.how, assumed)


def _readme(plan: Plan, title: str, readers: str, launch: Launch) -> str:
    config, model = plan.config, plan.workload.model
    layers = ", ".join(str(stage.layers) for stage in plan.stages)
    numbers = {key: str(getattr(config, key)) for key in ("tp", "pp", "dp", "cp", "ep", "vpp")}
    numbers |= {"tp": config.tp_text, "dp": config.dp_text}
    degrees = ", ".join(f"{key} {number}" for key, number in numbers.items())
    predicted = f" Predicted: {plan.prediction.step_s:.4g} s per step." if plan.prediction else ""
    lines = [
        f"# {model.name} on {plan.topology.name}, for {title}",
        "",
        f"Plan {planfile.digest(plan)} by {plan.made_by.strategy} (holmes-sim {plan.made_by.version}): "
        f"{config.world_size} ranks on {len(hosts.of_plan(plan))} hosts, {degrees}; layers by stage: {layers}; "
        f"schedule {config.schedule}, microbatches of {config.microbatch_size}.{predicted}",
        "",
    ]
    tested = f"Tested with other plans: exports of holmes-sim for {title} were read by {readers} and compared with the plan."
    return "\n".join([*lines, *sections(launch), tested, ""])


def sections(launch: Launch) -> list[str]:
    """Lines of a README on how to launch, the files, and what is assumed."""
    return [
        "## Launch",
        "",
        launch.how.strip(),
        "",
        "## Files",
        "",
        "| file | what it is |",
        "| --- | --- |",
        *(f"| `{name}` | {about} |" for name, about in _rows(launch.files)),
        "",
        "## Assumed",
        "",
        *([f"- {line}" for line in launch.assumed] or ["Nothing."]),
        "",
    ]


def _rows(found: dict[str, File]) -> list[tuple[str, str]]:
    """(name, description) of every file. Files of one folder with the same description share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, file in found.items():
        folder = str(Path(name).parent)
        rows.setdefault((folder, file.about) if folder != "." else (name, file.about), []).append(name)
    return [
        (names[0] if len(names) == 1 else f"{Path(names[0]).parent}/ ({len(names)} files)", about)
        for (_, about), names in rows.items()
    ]


def write(launch: Launch, target: str | Path) -> None:
    """Write the folder completely or not at all. Raises HolmesError where it contains files that are not part of the launch."""
    path = Path(target).resolve()
    if path.exists() and not path.is_dir():
        raise HolmesError(f"{target}: is a file; a folder is expected")
    strange = (
        sorted({str(old.relative_to(path)) for old in path.rglob("*") if not old.is_dir()} - launch.files.keys())
        if path.is_dir()
        else []
    )
    if strange:
        raise HolmesError(
            f"{target}: holds {strange[0]}, which is not part of this export; name a new folder or empty this one"
        )
    files.folder(path.parent)
    try:
        fresh = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise HolmesError(f"{target}: cannot be written: {error.strerror}") from None
    try:
        fresh.chmod(0o755)
        for name, file in launch.files.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            files.write(fresh / name, file.content)
            (fresh / name).chmod(0o755 if file.executable else 0o644)
        if path.is_dir():
            shutil.rmtree(path)
        fresh.replace(path)
    except OSError as error:
        raise HolmesError(f"{target}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def safe(name: str) -> str:
    """A name for use in file names, job names and Python identifiers: letters, digits and `-`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "plan"
