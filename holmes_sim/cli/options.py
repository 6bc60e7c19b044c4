"""Arguments and options that several commands share, and the options that pin dimensions of a plan."""

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
"""Title of the panel of --help that lists the pins."""

TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPO",
        help="A topology file, or the name of a shipped topology.",
        autocompletion=completion.shipped("topologies", ".yaml", ".yml"),
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file, as written by holmes-sim plan -o.")]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON document on stdout.")]
Measured = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME|FILE",
        help="Profile with measured seconds of layers; replaces the formulas for the shapes it has.",
        autocompletion=completion.catalogue("profiles"),
    ),
]
StackWord = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME|FILE",
        help="Software stack whose step times to plan with: a shipped one, or a file that holmes-sim calibrate wrote.",
        autocompletion=completion.catalogue("stacks"),
    ),
]
RequireFile = Annotated[
    Path | None,
    typer.Option(
        "--require",
        metavar="FILE",
        help="What plans must keep to: nodes, devices, rent, degrees, targets (holmes-sim schema require).",
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(metavar="NUMBER", help="Tokens of a whole training run, such as 2T: its days, money and energy."),
]
Headroom = Annotated[
    float | None,
    typer.Option(
        "--memory-headroom",
        metavar="SHARE [0<=x<1]",
        help="Share of each device's memory that plans leave free. Default: that of the topology, else 0.08.",
    ),
]
Edits = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key of the topology file, such as links[0].bandwidth=...; may be repeated."
    ),
]
ModelWord = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="Model of the catalogue, or a Hugging Face config.json.",
        autocompletion=completion.catalogue("models"),
    ),
]
BatchSize = Annotated[int | None, typer.Option(metavar="N", min=1, help="Sequences per optimizer step.")]
SequenceLength = Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens per sequence.")]
Cases = Annotated[
    list[Path] | None, typer.Option(metavar="FILE|FOLDER", help="A case file, or a folder of case files; may be repeated.")
]


def _for(more: str = "") -> Any:
    return typer.Option(
        "--for",
        metavar="TARGET",
        help="Launch target that must be able to run the plan (holmes-sim list targets), such as megatron; any: at least one "
        f"training framework; none: also plans that no framework runs.{more}",
        autocompletion=completion.modules("holmes_sim.exporters", "any", "none"),
    )


LaunchTarget = Annotated[str, _for()]
TargetOfPlan = Annotated[str | None, _for(" Default: that of the plan.")]
Runs = Annotated[
    list[Path] | None,
    typer.Option(metavar="FOLDER", help="A folder of plans that ran (holmes-sim plan --shortlist writes it); may be repeated."),
]

SyncWord = Annotated[
    str,
    typer.Option(
        "--sync",
        metavar="exact|any|NAME",
        help="How clusters that thin links join may keep one model: exact; any strategy; or those of NAME (holmes-sim list "
        "sync), such as 'local-steps<=64', diloco=100,int8 or diloco=100,int8,median.",
    ),
]


def _pin(words: str, least: int = 1) -> Any:
    """An option that pins one number of the plan."""
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
        metavar="none|selective|full|block",
        help="Which activations are recomputed; block: as few layers of each stage as memory requires.",
        rich_help_panel=PIN,
        autocompletion=completion.words("none", "selective", "full", "block"),
    ),
]
OffloadWord = Annotated[
    str | None,
    typer.Option(
        metavar="none|optimizer|parameters|activations|optimizer+activations",
        help="What host memory keeps; optimizer: its state, with the optimizer on the CPUs; parameters: weights and gradients, "
        "too, which are streamed to a single device; activations: what layers keep from forward to backward. Default: none.",
        rich_help_panel=PIN,
        autocompletion=completion.words("none", "optimizer", "parameters", "activations", "optimizer+activations"),
    ),
]


def edited(topology: Topology, settings: list[str] | None, require: Path | None = None) -> Topology:
    """The topology with the requirements of a file, and then every setting of --set, such as `clusters.ib.nodes=3`.

    A value is parsed as JSON, or as a mapping or list of YAML; else it is taken as text. Only the result of all settings must
    be right, so that a cluster and its links can be left out together; of settings of one key the last one counts. Raises
    HolmesError.
    """
    from holmes_sim import requirements
    from sim.errors import HolmesError
    from sim.formats import edits

    if require is not None:
        topology = requirements.require(topology, require)
    edits_of: dict[str, object] = {}
    for setting in settings or ():
        path, equals, value = setting.partition("=")
        if not equals:
            raise HolmesError(f"--set {setting!r} should be KEY=VALUE, such as clusters.ib.node.nics[0].bandwidth='400 Gbit/s'")
        edits_of[path.strip()] = _value(value.strip())
    return edits.edited(topology, edits_of) if edits_of else topology


def values_of(texts: list[str]) -> dict[str, list[object]]:
    """Values of keys from texts such as `links[0].bandwidth=1 Gbit/s, 10 Gbit/s` or `plan.tp=[1, 2]`. Raises HolmesError."""
    from sim.errors import HolmesError

    found: dict[str, list[object]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key or not values:
            raise HolmesError(f"{text!r} should be KEY=VALUES, such as links[0].bandwidth='1 Gbit/s, 10 Gbit/s'")
        if key in found:
            raise HolmesError(f"{text!r}: {key} is given twice; give all its values at once")
        listed = _value(values)
        found[key] = listed if isinstance(listed, list) else [_value(value.strip()) for value in values.split(",")]
    return found


def _value(text: str) -> object:
    """The value of a text: JSON; a mapping or list as topology files write it, such as `{imbalance: 1.3}`; else the text."""
    from sim.formats import documents

    try:
        found: object = json.loads(text)
    except ValueError:
        return documents.parse("--set", text).value if text.startswith(("{", "[")) else text
    return found


def _pins(
    tp: Annotated[int | None, _pin("Tensor-parallel degree.")] = None,
    pp: Annotated[int | None, _pin("Pipeline-parallel degree.")] = None,
    dp: Annotated[int | None, _pin("Data-parallel degree.")] = None,
    cp: Annotated[int | None, _pin("Context-parallel degree.")] = None,
    ep: Annotated[int | None, _pin("Expert-parallel degree.")] = None,
    etp: Annotated[int | None, _pin("Tensor-parallel degree of experts. Default: tp, or 1 where that is faster.")] = None,
    vpp: Annotated[int | None, _pin("Virtual stages per pipeline rank, for the interleaved schedule.")] = None,
    microbatch_size: Annotated[int | None, _pin("Sequences per microbatch.")] = None,
    schedule: ScheduleWord = None,
    recompute: RecomputeWord = None,
    zero_stage: Annotated[int | None, _pin("ZeRO stage: 0 to 3.", 0)] = None,
    zero_shard_size: Annotated[int | None, _pin("Number of ranks that ZeRO shards over. Default: dp x cp.", 2)] = None,
    offload: OffloadWord = None,
) -> Wishes:
    from planner.request import Wishes

    return Wishes(tp, pp, dp, vpp, microbatch_size, schedule, recompute, zero_stage, cp, ep, etp, zero_shard_size, offload)


def pinned(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its parameter `wishes` replaced by one option per dimension; the pinned dimensions become the wishes."""
    own, pins = _parameters(command), _parameters(_pins)
    del own["wishes"]

    @functools.wraps(command)
    def with_pins(**given: Any) -> None:
        wishes = _pins(**{name: given.pop(name) for name in pins})
        command(**given, wishes=wishes)

    shown = own | pins
    with_pins.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]
    with_pins.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    return with_pins


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Parameters of a function by name, as keyword-only parameters with their annotations resolved, as typer needs them."""
    hints = get_type_hints(function, localns={"Wishes": object}, include_extras=True)  # planner is not imported for --help
    found = inspect.signature(function).parameters
    return {name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]) for name, p in found.items()}
