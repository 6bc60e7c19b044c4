"""Arguments and options that several commands take, and the pins of a plan."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from holmes_sim.cli import completion

if TYPE_CHECKING:
    from planner.request import Wishes
    from sim.hardware.topology import Topology

PIN = "Pin a dimension"
"""The part of --help where the pins stand."""

TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPO",
        help="A topology file, or the name of a shipped one.",
        autocompletion=completion.shipped("topologies", ".yaml", ".yml"),
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file, as written by holmes-sim plan -o.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Measured = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME|FILE",
        help="Measured layer seconds, in place of formulas where they fit.",
        autocompletion=completion.catalogue("profiles"),
    ),
]
Edits = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value at a place of the topology's file; may be given again."),
]
ModelWord = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="A model of the catalogue or a Hugging Face config.json.",
        autocompletion=completion.catalogue("models"),
    ),
]
BatchSize = Annotated[int | None, typer.Option(metavar="N", min=1, help="Sequences of one optimizer step.")]
SequenceLength = Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens of a sequence.")]
Cases = Annotated[
    list[Path] | None, typer.Option(metavar="FILE|FOLDER", help="A case file or a folder of them; may be given again.")
]


def _pin(words: str, least: int = 1) -> Any:
    """An option that pins a number of the plan."""
    return typer.Option(metavar="N", min=least, help=words, rich_help_panel=PIN)


ScheduleWord = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A pipeline schedule (holmes-sim list schedules).",
        rich_help_panel=PIN,
        autocompletion=completion.schedules,
    ),
]
RecomputeWord = Annotated[
    str | None,
    typer.Option(
        metavar="none|selective|full",
        help="What activations are recomputed.",
        rich_help_panel=PIN,
        autocompletion=completion.words("none", "selective", "full"),
    ),
]


def edited(topology: Topology, settings: list[str] | None) -> Topology:
    """The topology with each `clusters.ib.nodes=3` in its place; values are JSON, or text as it stands. Raises HolmesError."""
    from sim.errors import HolmesError
    from sim.formats import edits

    for setting in settings or ():
        path, equals, value = setting.partition("=")
        if not equals:
            raise HolmesError(f"--set {setting!r} should be KEY=VALUE, such as clusters.ib.node.nics[0].bandwidth='400 Gbit/s'")
        topology = edits.edited(topology, {path.strip(): _value(value.strip())})
    return topology


def _value(text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        return text
    return found


def _pins(
    tp: Annotated[int | None, _pin("Tensor-parallel degree.")] = None,
    pp: Annotated[int | None, _pin("Pipeline-parallel degree.")] = None,
    dp: Annotated[int | None, _pin("Data-parallel degree.")] = None,
    cp: Annotated[int | None, _pin("Context-parallel degree.")] = None,
    ep: Annotated[int | None, _pin("Expert-parallel degree.")] = None,
    vpp: Annotated[int | None, _pin("Stages of a rank, for an interleaved schedule.")] = None,
    microbatch_size: Annotated[int | None, _pin("Sequences of a microbatch.")] = None,
    schedule: ScheduleWord = None,
    recompute: RecomputeWord = None,
    zero_stage: Annotated[int | None, _pin("What ZeRO shares among replicas: 0 to 3.", 0)] = None,
    zero_shard_size: Annotated[int | None, _pin("Ranks that share what ZeRO shares, where not all.", 2)] = None,
) -> Wishes:
    from planner.request import Wishes

    return Wishes(tp, pp, dp, vpp, microbatch_size, schedule, recompute, zero_stage, cp, ep, zero_shard_size)


def pinned(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes `wishes`, with an option for each dimension in their place: what it pins becomes the wishes."""
    own, pins = _parameters(command), _parameters(_pins)
    del own["wishes"]

    @functools.wraps(command)
    def asked(**given: Any) -> None:
        wishes = _pins(**{name: given.pop(name) for name in pins})
        command(**given, wishes=wishes)

    shown = own | pins
    asked.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]
    asked.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    return asked


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Parameters by name, each given by its name and with its annotation as typer reads it."""
    hints = get_type_hints(function, localns={"Wishes": object}, include_extras=True)  # planner is not imported for --help
    found = inspect.signature(function).parameters
    return {name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]) for name, p in found.items()}
