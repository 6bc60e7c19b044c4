"""Schema of requirements of a plan: the key `require` of a topology, or a file of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from sim.errors import TopologyError
from sim.formats import hostlist
from sim.formats.documents import KeyPath
from sim.formats.fields import Cost, Count, Fraction, Measured, Price, StrictModel, TokenCount, UsefulShare
from sim.formats.kept_facts import KeptRanks
from sim.formats.suggestions import suggestion
from sim.plan import schedules
from sim.plan.allowed import Allowed
from sim.plan.offloading import CHOICES
from sim.plan.parallel_config import RECOMPUTE

FORMAT = "holmes-sim/require/1"


def _number(value: object, least: int, most: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number; write a number, a list of numbers, or min and max")
    if value < least:
        raise ValueError(f"{value} must be at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{value} must be at most {most}")
    return value


def _numbers(least: int, most: int | None = None) -> Any:
    """Annotated type of allowed numbers: 8, [4, 8] or {min: 2, max: 8}."""

    def check(value: object) -> Allowed:
        if isinstance(value, Allowed):
            return value
        if isinstance(value, dict):
            other = [str(key) for key in value if key not in ("min", "max")]
            if other or not value:
                raise ValueError(f"a range has min, max or both{f', not {other[0]}' if other else ''}")
            low, high = (_number(value[key], least, most) if key in value else None for key in ("min", "max"))
            if low is not None and high is not None and low > high:
                raise ValueError(f"min {low} is above max {high}")
            return Allowed(least=low, most=high)
        values = value if isinstance(value, list) else [value]
        if not values:
            raise ValueError("a list of allowed numbers needs at least one")
        return Allowed(tuple(dict.fromkeys(_number(one, least, most) for one in values)))

    number: dict[str, Any] = {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})
    bounds = {"type": "object", "properties": {"min": number, "max": number}, "additionalProperties": False, "minProperties": 1}
    forms = [number, {"type": "array", "items": number, "minItems": 1}, bounds]
    return Annotated[Any, BeforeValidator(check), WithJsonSchema({"anyOf": forms})]


def _words(kind: str, known: tuple[str, ...]) -> Any:
    """Annotated type of allowed words: one, or a list of them."""

    def check(value: object) -> Allowed:
        if isinstance(value, Allowed):
            return value
        values: list[Any] = value if isinstance(value, list) else [value]
        for one in values:
            if one not in known:
                raise ValueError(f"{kind} {one!r} is unknown{suggestion(str(one), known)}")
        if not values:
            raise ValueError(f"a list of allowed values of {kind} needs at least one")
        return Allowed(tuple(dict.fromkeys(values)))

    word = {"enum": list(known)}
    return Annotated[
        Any, BeforeValidator(check), WithJsonSchema({"anyOf": [word, {"type": "array", "items": word, "minItems": 1}]})
    ]


def places(value: object) -> list[str]:
    """Clusters, nodes and host names of a text or a list, host names expanded from Slurm's notation. Raises ValueError."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(f"clusters, nodes such as ib/node3, or hosts such as gpu[001-004] are expected here, not {value!r}")
    try:
        return [name for item in items for name in ((item,) if "/" in item else hostlist.expand(item))]
    except TopologyError as error:
        raise ValueError(str(error)) from None


def _targets(value: object) -> Allowed | list[str]:
    """Names of launch targets, or the least number of training frameworks. Raises ValueError."""
    if isinstance(value, dict):
        if set(value) != {"min"}:
            raise ValueError(
                "write targets with names, such as [megatron], or the least number of frameworks, such as {min: 2}"
            )
        return Allowed(least=_number(value["min"], 1, None))
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise ValueError(f"a list of launch targets such as [megatron], or {{min: 2}}, is expected here, not {value!r}")


Targets: Any = Annotated[
    Any,
    BeforeValidator(_targets),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {
                    "type": "object",
                    "properties": {"min": {"type": "integer", "minimum": 1}},
                    "required": ["min"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Places = Annotated[list[str], BeforeValidator(places)]
Numbers: Any = _numbers(1)
Stages: Any = _numbers(0, 3)
Schedules: Any = _words("schedule", tuple(filter(schedules.can_be_pinned, schedules.names())))
Recomputation: Any = _words("recompute", RECOMPUTE)
Offload: Any = _words("offload", tuple(CHOICES))


class MostDevices(StrictModel):
    """Most devices that have a rank."""

    max: Count


class MostRent(StrictModel):
    """Most rent of the nodes that have a rank, all devices of which are paid for."""

    max: Price


class MostCost(StrictModel):
    """Most rent of the nodes that have a rank, for each token that is trained."""

    max: Cost


class MostDays(StrictModel):
    """Most days of training on a number of tokens. goodput: share of the time that is spent on steps that no failure undoes;
    that of the failures of the Llama 3 training run on all devices that may be used, if left out."""

    max: Measured
    tokens: TokenCount
    goodput: UsefulShare | None = None


class NodesFacts(StrictModel):
    """Nodes that may be used: all but some, or only some. Each is a cluster, a node such as ib/node3, or a host name;
    `gpu[001-004]` means four hosts."""

    exclude: Places | None = None
    only: Places | None = None

    @model_validator(mode="after")
    def _consistent(self) -> NodesFacts:
        if (self.exclude is None) == (self.only is None):
            raise ValueError("write either exclude or only, with a list of clusters, nodes and hosts")
        return self


class ClusterRequirements(StrictModel):
    """Allowed values for plans that use a cluster, and allowed numbers of its nodes; with a least number, plans must use it."""

    nodes: Numbers | None = Field(None, description="nodes of the cluster with a rank")
    tp: Numbers | None = None
    dp: Numbers | None = None
    cp: Numbers | None = None
    ep: Numbers | None = None
    etp: Numbers | None = None
    microbatch_size: Numbers | None = None
    recompute: Recomputation | None = None


class KeptStage(StrictModel):
    """A pipeline stage that is kept on a cluster."""

    stage: int = Field(description="number of the pipeline rank: 0 for the first one, -1 for the last one")
    cluster: str


class RequireFacts(StrictModel):
    """What a plan must keep to. Dimensions have one allowed value, a list of them, or min and max."""

    tp: Numbers | None = None
    pp: Numbers | None = None
    dp: Numbers | None = None
    cp: Numbers | None = None
    ep: Numbers | None = None
    etp: Numbers | None = None
    vpp: Numbers | None = None
    microbatch_size: Numbers | None = None
    zero_stage: Stages | None = None
    schedule: Schedules | None = None
    recompute: Recomputation | None = None
    offload: Offload | None = None
    devices: MostDevices | None = None
    rent: MostRent | None = None
    cost: MostCost | None = None
    days: MostDays | None = None
    memory_headroom: Fraction | None = Field(None, description="share of each device's memory that plans leave free")
    nodes: NodesFacts | None = None
    first_stage: str | None = Field(None, description="cluster of the first pipeline stage, such as the one with the data")
    last_stage: str | None = Field(None, description="cluster of the last pipeline stage")
    stages: list[KeptStage] = Field([], description="clusters of further pipeline stages, each by its number")
    ranks: KeptRanks | None = Field(None, description="ranks that keep their weights and devices of a plan of today")
    targets: Targets = Field(
        [], description="launch targets, all of which must be able to run the plan, or the least number of training frameworks"
    )
    clusters: dict[str, ClusterRequirements] = Field({}, description="allowed values for plans that use a cluster")


class RequireFile(RequireFacts):
    """A file of requirements."""

    format: Literal["holmes-sim/require/1"]


def faults(value: object, clusters: Iterable[str]) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of clusters that a mapping of requirements names and a topology does not have."""
    known = [name for name in clusters if isinstance(name, str)]
    given = value if isinstance(value, dict) else {}
    named: list[tuple[KeyPath, object]] = [((key,), given.get(key)) for key in ("first_stage", "last_stage")]
    stages = given.get("stages")
    for index, one in enumerate(stages if isinstance(stages, list) else ()):
        named.append((("stages", index, "cluster"), one.get("cluster") if isinstance(one, dict) else None))
    inside = given.get("clusters")
    named += [(("clusters", name), name) for name in (inside if isinstance(inside, dict) else {})]
    for path, name in named:
        if isinstance(name, str) and name not in known:
            yield path, f"cluster {name!r} does not exist{suggestion(name, known)}"
