"""Text of a certificate: how far the plan can be from the best one, and which space was searched."""

from __future__ import annotations

from collections.abc import Sequence

from planner.search.along_a_v_space import ALONG
from planner.search.left_out import BOUNDED, TRIED
from planner.target import ANY
from sim.compression import NONE
from sim.plan.certificate import UNLIKE, Axis, Certificate
from sim.plan.plan import Plan
from sim.units import MEGA, time_text

AXIS_TITLES = {"microbatch_size": "microbatch size", "zero_stage": "ZeRO"}
"""Axis of the searched space -> its name in printed text, where it differs."""
LISTED = (
    "tp", "stage_tp", "pp", "dp", "cp", "ep", "etp", "microbatch_size", "schedule", "vpp", "zero_stage", "zero_shard_size",
    "offload", "recompute", "target", ALONG,
)  # fmt: skip
"""Axes that are printed; plan.json has all of them."""
DEGREES = "Its stages have degrees of their own on each cluster"
"""What is said of a plan with unlike degrees."""
PRINTED_VALUES = 12
"""Up to this many values of an axis are all printed; above, the first, the last and their number."""


def certificate(plan: Plan, found: Certificate) -> str:
    """The certificate in one or two sentences: how far the plan can be from the best one, and which plans this covers."""
    if found.lower_bound_per_token is not None:
        least = amount(found.objective, found.lower_bound_per_token)
        return (
            f"Certificate: no searched plan takes less than {least} (every layer on the device where it takes least, without "
            f"waiting): at most {found.gap:.1%} of this plan's {found.objective} could be saved.{_time_limit(found)}"
        )
    if found.beside_space:
        return _beside(plan, found) + _time_limit(found)
    far = (
        "this plan is the best of them" if found.status == "optimal" else f"at most {found.gap:.1%} of the step could be saved"
    )
    least = f"{time_text(found.lower_bound_s)} ({found.solver})"
    open_part = f" The least bound is that of {found.least_bound_layout}." if found.least_bound_layout else ""
    whole = found.whole_lower_bound_s
    if whole is not None and whole > found.lower_bound_s and found.least_bound_layout:
        open_part += f" No searched plan with each stage on one cluster takes less than {time_text(whole)}."
    if plan.config.message_compression != NONE:
        open_part += " This bound is for whole messages: nothing is proved for compressed messages between clusters."
    return f"Certificate: no searched plan takes less than {least}: {far}.{open_part}{_unlike(found)}{_time_limit(found)}"


def _unlike(found: Certificate) -> str:
    """What is proved of plans with unlike degrees beside a plan that has none; empty where nothing is."""
    bound = found.unlike_degrees
    if bound is None:
        return ""
    if bound.lower_bound_s >= found.lower_bound_s and not found.beside_space:
        return " Nor does one in which clusters have degrees of their own."
    return f" {str(bound)[0].upper()}{str(bound)[1:]}."


def _beside(plan: Plan, found: Certificate) -> str:
    """What is proved for a plan whose stages have degrees of their own, or with a cp, an offload or recomputed modules, that no
    plan of the searched space has."""
    config, bound = plan.config, found.space_lower_bound_s
    unlike = config.has_stage_degrees or config.stage_ep or config.stage_etp
    own = DEGREES if unlike else f"Its cp {config.cp} is not searched"
    if config.offload and all(axis.name != "offload" for axis in found.space):
        own = f"Offload of the {' and '.join(config.offload)} is not searched (--offload)"
    if config.recompute_modules or config.stage_recompute:
        own = "Recomputation of modules is not searched"
    ratio = bound / found.objective_s
    far = f"{ratio - 1:.1%} more than this plan" if ratio >= 1 else f"{1 - ratio:.1%} less than this plan"
    far = "as long as this plan takes" if far.startswith("0.0%") else far
    least = f"Certificate: no plan of the searched space takes less than {time_text(bound)} ({found.solver}), {far}."
    if own == DEGREES and found.unlike_degrees is not None:
        return f"{least} {own}: {str(found.unlike_degrees).replace(UNLIKE, 'no such plan')}."
    return f"{least} {own}: nothing is proved for other plans of this kind.{_unlike(found)}"


def unlike_degrees(found: Certificate) -> str:
    """What is proved of plans with unlike degrees, and their space, in two lines; empty where nothing is."""
    bound = found.unlike_degrees
    return f"Unlike degrees: {bound}.\nTheir space: {bound.space}." if bound is not None else ""


def _time_limit(found: Certificate) -> str:
    return " The time limit ended the search." if found.time_limit_reached else ""


def searched(found: Certificate) -> str:
    """One line with the searched space and what is outside of it; empty if the plan file does not have it."""
    if not found.space:
        return ""
    axes = {axis.name: axis for axis in found.space}
    parts = [_axis(axis, axes.get("vpp")) for name, axis in axes.items() if name in LISTED and _is_printed(axis, axes)]
    split = [text.partition(" ") for text in found.outside]
    other = [_outside(name, text) for name, _, text in split if name in LISTED or text in (TRIED, BOUNDED)]
    if not other:  # none in one or two words
        other = [*found.outside]
    elif len(other) < len(split):
        other.append("more in plan.json")
    required = f" Required: {'; '.join(map(str, axes['required'].values))}." if "required" in axes else ""
    return f"Searched: {', '.join(parts)}.{required}" + (f" Outside: {'; '.join(other)}." if other else "")


def free_memory(plan: Plan) -> str:
    """One line with the share of memory that plans leave free; empty if they may fill a device."""
    share = plan.topology.memory_headroom
    return f"Plans leave {100 * share:.3g}% of each device's memory free (--memory-headroom)." if share else ""


def values(axis: Axis) -> str:
    """The values of an axis as text; of more than `PRINTED_VALUES` values the first, the last and their number."""
    if len(axis.values) > PRINTED_VALUES:
        return f"{axis.values[0]} to {axis.values[-1]} ({len(axis.values)} values)"
    return ("; " if any(" " in str(value) for value in axis.values) else ", ").join(map(str, axis.values))


def _is_printed(axis: Axis, axes: dict[str, Axis]) -> bool:
    """Whether an axis is printed by itself: cp and ep only if they exceed 1, vpp only if there is no schedule axis."""
    return axis.values != (1,) if axis.name in ("cp", "ep") else axis.name != "vpp" or "schedule" not in axes


def _axis(axis: Axis, vpp: Axis | None) -> str:
    """An axis as text: `tp 1-8`, `schedules 1f1b, interleaved (vpp 2 or 4)`, `recompute none or full`."""
    if axis.name == "target":
        return f"layouts that {' '.join(map(str, axis.values)) if axis.values != (ANY,) else 'some training framework'} can run"
    if axis.name == ALONG:
        return f"beside them {str(axis.values[0]).partition(',')[0]}"
    if axis.name != "schedule":
        return _titled(axis.name, _span(axis.values))
    chunks = _span(tuple(value for value in vpp.values if value != 1)) if vpp else ""
    names = [f"{name} (vpp {chunks})" if chunks and name == "interleaved" else str(name) for name in axis.values]
    return f"schedule{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _span(found: Sequence[str | int]) -> str:
    """Values as text: all of up to two values or of texts; else the first and the last, and the number of values if large."""
    if len(found) <= 2 or isinstance(found[0], str):
        return " or ".join(str(value).replace(" to ", "-") for value in found)
    return f"{found[0]}-{found[-1]}" + (f" ({len(found)})" if len(found) > PRINTED_VALUES else "")


def _outside(name: str, text: str) -> str:
    """Values of an axis outside the searched space: `cp 2-16 (4)`; schedules without the name of the axis."""
    short = text.replace(" to ", "-").replace(" values)", ")")
    return short if name == "schedule" else _titled(name, short)


def _titled(name: str, text: str) -> str:
    return f"{AXIS_TITLES.get(name, name)} {text}"


def amount(objective: str, number: float) -> str:
    """The value of an objective with its unit: `7.3 s`, `0.083 USD per million tokens`, `0.06 J per token`."""
    if objective == "step-time":
        return time_text(number)
    return f"{number * MEGA:.4g} USD per million tokens" if objective == "cost" else f"{number:.4g} J per token"
