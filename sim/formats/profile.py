"""Reader of profiles: measured seconds of layers, attached to the devices of a fleet.

A profile is a shipped one (`sim/catalog/profiles/`) or a file. Its rows are attached to the devices, where
`sim.kernels.compute` finds them: planner, closed form and engine use the same seconds, and a plan contains the rows it depends
on. Implausible measurements are ignored: rows with fewer entries than the layers and two ends of their model (copied from
another model), and heads faster than the device's peak allows (their logits were not measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.documents import Document, KeyPath, check, parse, read_text
from sim.formats.profile_facts import ProfileFacts, ProfileRowFacts
from sim.formats.suggestions import suggestion
from sim.hardware.cluster import Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.measured import ForwardBackward, MeasuredRow, Profile, shape
from sim.workload.model import Model

PROFILE_FORMAT = "holmes-sim/profile/1"
SAILOR = "sailor"
"""The shipped profile from which a measurements file without `format` takes missing names and precision."""
ENDS = 2
"""Number of entries of a profiled model besides its layers: embedding and head."""


def load(name: str | Path, folder: Path = Path()) -> ProfileFacts:
    """A shipped profile by name, or a file, looked up in `folder` first. Raises TopologyError with one line per fault."""
    if str(name) in catalog.names("profiles") and not Path(name).exists():
        entry = files("sim.catalog") / "profiles" / f"{name}.yaml"
        return from_document(parse(f"catalog/profiles/{name}.yaml", entry.read_text(encoding="utf-8")))
    path = folder / name if (folder / name).exists() else Path(name)
    if not path.exists() and not path.suffix:
        known = ", ".join(catalog.names("profiles"))
        raise TopologyError(f"profile {str(name)!r} is neither a file nor in the catalogue; known: {known}")
    return from_document(parse(str(path), read_text(path)))


def from_document(document: Document) -> ProfileFacts:
    """The profile of a parsed document; a file without `format` takes missing keys from `SAILOR`. Raises TopologyError."""
    written = document.value if isinstance(document.value, dict) else {}
    facts = check(document, ProfileFacts, faults(written))
    if facts.format is None:
        header = load(SAILOR)
        facts = facts.model_copy(update={key: getattr(header, key) for key in _INHERITED if not getattr(facts, key)})
    return facts


_INHERITED = ("precision", "devices", "models", "left_out")


def _header() -> dict[str, Any]:
    facts = load(SAILOR)
    return {key: getattr(facts, key) for key in _INHERITED}


def faults(written: dict[Any, Any]) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of faults beyond the schema: unknown names, and rows given twice."""
    known = written if "format" in written else _header() | written
    if "precision" not in known:
        yield ("precision",), "this key is missing; write the precision that was measured"
    given = written.get("in_place")
    in_place = given if isinstance(given, list) else []
    rows, names = written.get("layer_profiles"), [*_mapping(known.get("devices")), *in_place]
    models = [*_mapping(known.get("models")), *_mapping(known.get("left_out"))]
    seen: dict[tuple[Any, ...], int] = {}
    for gpu, device in _mapping(written.get("devices")).items():
        if device not in in_place:
            yield from _unknown_device(("devices", str(gpu)), device)
    for index, row in enumerate(rows if isinstance(rows, list) else []):
        at: KeyPath = ("layer_profiles", index)
        model, gpu = (_mapping(row).get(key) for key in ("model", "gpu"))
        if isinstance(model, str) and model not in models:
            yield (*at, "model"), f"model {model!r} has no shape under models{suggestion(model, models)}"
        if isinstance(gpu, str) and gpu not in names:
            yield from _unknown_device((*at, "gpu"), gpu)
        key = tuple(_mapping(row).get(name) for name in ("model", "gpu", "tp", "micro_batch"))
        if key in seen:
            yield at, f"this row repeats layer_profiles[{seen[key]}]"
        seen.setdefault(key, index)


def _mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _unknown_device(at: KeyPath, name: object) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(name, str) and name not in catalog.names("devices"):
        near = suggestion(name, catalog.names("devices"))
        yield at, f"device {name!r} is not in the catalogue; write its name there under devices{near}"


def put_on(fleet: Fleet, facts: ProfileFacts) -> Fleet:
    """The fleet with the rows of the profile attached to its devices."""
    clusters = []
    for cluster in fleet.clusters:
        device = cluster.node.device
        rows = _rising([row for written in facts.layer_profiles if (row := _row(written, device, facts)) is not None])
        device = replace(device, profile=Profile(rows) if rows else None)
        clusters.append(replace(cluster, node=replace(cluster.node, device=device)))
    return replace(fleet, clusters=tuple(clusters))


def _rising(rows: list[MeasuredRow]) -> tuple[MeasuredRow, ...]:
    """The rows, made monotonic: layer seconds are capped by those of larger microbatches, since less work is not slower."""
    alike: dict[tuple[Model, int, int], list[ForwardBackward]] = {}
    found = []
    for row in sorted(rows, key=lambda row: -row.microbatch_size):
        larger = alike.setdefault((row.model, row.seq_len, row.tp), [])
        larger.append(row.layer)
        found.append(replace(row, layer=(min(fw for fw, _ in larger), min(bw for _, bw in larger))))
    return tuple(found)


def _row(row: ProfileRowFacts, device: DeviceSpec, facts: ProfileFacts) -> MeasuredRow | None:
    """A row of the simulator; None if it is of another device, left out or implausible."""
    if facts.devices.get(row.gpu, row.gpu) != device.name or row.model in facts.left_out:
        return None
    of = facts.models[row.model]
    model = of.model()
    if row.n_entries is not None and row.n_entries < model.layers + ENDS:
        return None
    head: ForwardBackward | None = None
    if row.head_forward_s and row.head_backward_s is not None:
        logits = 2.0 * row.micro_batch * of.seq_len * model.hidden * model.vocab / row.tp
        possible = row.head_forward_s >= logits / device.peak_of(str(facts.precision))
        head = (row.head_forward_s, row.head_backward_s) if possible else None
    update = row.layer_update_s * row.tp / of.updated_parameters if of.updated_parameters else 0.0
    return MeasuredRow(
        model=shape(model),
        seq_len=of.seq_len,
        precision=device.runs(str(facts.precision)),
        tp=row.tp,
        microbatch_size=row.micro_batch,
        layer=(row.layer_forward_s, row.layer_backward_s),
        embedding=(row.embedding_forward_s, row.embedding_backward_s),
        head=head,
        update=update or None,
        collectives=facts.collectives == "inside",
    )


def kept(facts: ProfileFacts, fleet: Fleet) -> dict[str, Any]:
    """The part of the profile that the fleet can use, as plain data for plan.json; empty if there is none."""
    devices = {cluster.node.device.name for cluster in fleet.clusters}
    rows = [
        row
        for row in facts.layer_profiles
        if facts.devices.get(row.gpu, row.gpu) in devices and row.model not in facts.left_out
    ]
    if not rows:
        return {}
    models = {row.model for row in rows}
    return {
        "format": PROFILE_FORMAT,
        "source": facts.source,
        "precision": facts.precision,
        **({"collectives": facts.collectives} if facts.collectives != "inside" else {}),
        **({"in_place": own} if (own := [name for name in facts.in_place if name in devices]) else {}),
        "devices": {gpu: device for gpu, device in facts.devices.items() if device in devices},
        "models": {name: model.model_dump(exclude_defaults=True) for name, model in facts.models.items() if name in models},
        "layer_profiles": [row.model_dump(exclude_defaults=True) for row in rows],
    }
