"""The space of plans along a V (`planner.search.along_a_v`): its dimensions with their values, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable

from planner.request import Request
from planner.space.shape import Shape
from sim.plan import schedules
from sim.plan.certificate import Axis

ALONG = "along a V"
"""Name of the axis of these plans beside other ones."""


def axes(request: Request, shapes: Iterable[Shape]) -> tuple[Axis, ...]:
    """The dimensions of the search with their values."""
    every = list(shapes)
    several = ("tp", "dp", "cp", "ep", "microbatch_size", "zero_stage", "recompute")
    found = [Axis(name, tuple(sorted({getattr(one, name) for one in every}))) for name in several]
    if any(one.etp for one in every):
        found.append(Axis("etp", tuple(sorted({"tp" if one.etp is None else str(one.etp) for one in every}))))
    ends = (Axis("target", (request.target.name,)),) if request.target is not None else ()
    required = (Axis("required", words),) if (words := tuple(request.limits.words())) else ()
    overlaps = ("on", "off") if request.target is not None else ("on",)
    return (
        *(axis for axis in found if axis.values),
        Axis("pp", (request.wishes.pp or "2 to half of the microbatches of a replica, of the layers",)),
        Axis("schedule", (request.wishes.schedule or "",)),
        Axis("vpp", (2,)),
        Axis("overlap_grad_reduce", overlaps),
        Axis("overlap_param_gather", ("on", "off")),
        Axis("layers", ("any split over pipeline ranks, halved on each",)),
        *ends,
        *required,
        Axis("placement", ("each cluster's ranks side by side, in any order of clusters, node after node",)),
    )


def along(schedule: str) -> Axis:
    """The space of these plans beside another one, whose degrees and batches it shares."""
    text = (
        f"schedule {schedule}, vpp 2, ZeRO 1 unless pinned, recompute full or none, equal replicas, each cluster's ranks side "
        "by side, any split of layers over ranks, halved on each, overlaps on or off"
    )
    return Axis(ALONG, (text,))


def without(outside: Iterable[str], schedule: str) -> tuple[str, ...]:
    """What another search leaves out, without a schedule."""
    return tuple(_without(text, schedule) for text in outside)


def _without(text: str, schedule: str) -> str:
    head, names = text.partition(" ")[::2]
    if head != "schedule":
        return text
    return f"schedule {', '.join(name for name in names.split(', ') if name != schedule)}"


def left_out(request: Request) -> tuple[str, ...]:
    """What a plan could have and the search leaves out."""
    other = (name for name in schedules.names() if name != request.wishes.schedule)
    zero = () if request.wishes.zero_stage is not None else ("ZeRO 0",)
    return (
        f"schedule {', '.join(other)}",
        *zero,
        "recompute selective",
        "stages across clusters",
        "replicas with unlike numbers of microbatches",
        "unlike stages: degrees, microbatch sizes, recomputation, ZeRO and offload of their own",
        "the two stages of a rank with unlike numbers of layers, but for one layer",
        "clusters that a pipeline enters more than once",
    )
