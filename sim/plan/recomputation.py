"""What pipeline ranks recompute: the kind, its modules and the number of layers, of all alike or by `stage_recompute`."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import PlanError
from sim.plan import schedules

MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj")
"""Modules of a layer that selective recomputation recomputes (`sim.kernels.recomputation`); names as in Megatron-Core."""


class Recomputation:
    """The recomputation of each pipeline rank."""

    __slots__ = ()
    pp: int
    vpp: int
    schedule: str
    attention: str
    recompute: str
    recompute_layers: tuple[int, ...]
    recompute_modules: tuple[str, ...]
    stage_recompute: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that selective recomputation recomputes; not the attention core if it is fused, which keeps no scores."""
        if self.recompute != "selective":
            return ()
        found = self.recompute_modules or ("core_attn",)
        return tuple(name for name in found if name != "core_attn" or self.attention == "unfused")

    def repeats_mlp(self, experts: int) -> bool:
        """Whether selective recomputation runs the forward of the whole MLP of a layer again, with its collectives."""
        return ("moe" if experts else "mlp") in self.modules

    def recomputed(self, layers: int) -> int:
        """Number of layers that are recomputed in full, of a stage with so many (`Plan.config_of` has the stage's number)."""
        if self.recompute != "full":
            return 0
        return min(self.recompute_layers[0], layers) if self.recompute_layers else layers

    def recomputation_of(self, pp_rank: int) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
        """`recompute`, `recompute_layers` and `recompute_modules` of a pipeline rank by itself."""
        if not self.stage_recompute:
            return self.recompute, self.recompute_layers, self.recompute_modules
        kind, modules = kind_and_modules(self.stage_recompute[pp_rank])
        return kind, self.recompute_layers if kind == "full" else (), modules

    @property
    def named_modules(self) -> tuple[tuple[str, str], ...]:
        """(key, module) of each module that is named for all pipeline ranks, or for some of them."""
        by_stage = (module for value in self.stage_recompute for module in kind_and_modules(value)[1])
        of_all = (("recompute_modules", module) for module in self.recompute_modules)
        return (*of_all, *(("stage_recompute", module) for module in dict.fromkeys(by_stage)))


def kind_and_modules(value: str) -> tuple[str, tuple[str, ...]]:
    """Kind and modules of a value of `stage_recompute`: none, selective, full, or modules of selective recomputation, joined by
    +."""
    return (value, ()) if value in ("none", "selective", "full") else ("selective", tuple(value.split("+")))


def check_recomputation(config: Recomputation, kinds: Sequence[str]) -> None:
    """Raise PlanError for unknown modules, and for numbers, modules and kinds of stages (`kinds`, from the least to the most)
    that contradict each other."""
    counts, num_stages = config.recompute_layers, config.pp * config.vpp
    if counts and config.recompute != "full":
        raise PlanError(f"recompute_layers {_listed(counts)} needs recompute full, not {config.recompute}")
    if len(counts) > 1 and len(counts) != num_stages:
        raise PlanError(f"recompute_layers has {len(counts)} numbers; one, or one for each of {num_stages} stages")
    if config.stage_recompute:
        _check_stages(config, kinds)
    if config.recompute_modules and config.recompute != "selective":
        raise PlanError(
            f"recompute_modules {_listed(config.recompute_modules)} needs recompute selective, not {config.recompute}"
        )
    for key, module in config.named_modules if config.stage_recompute or config.recompute_modules else ():
        if module not in MODULES:
            others = "none, selective, full, or modules joined by +: " if key == "stage_recompute" else ""
            raise PlanError(f"{key} {module!r} is unknown; known: {others}{', '.join(MODULES)}")
    if counts and min(counts) < 0:
        raise PlanError(f"recompute_layers {_listed(counts)}: a number of layers is not negative")


def _check_stages(config: Recomputation, kinds: Sequence[str]) -> None:
    values = config.stage_recompute
    if len(values) != config.pp or len(set(values)) == 1:
        raise PlanError(
            f"stage_recompute {_listed(values)}: one value for each of pp {config.pp} pipeline ranks, not all equal; leave it "
            "out where they are"
        )
    most = max((kind_and_modules(value)[0] for value in values), key=kinds.index)
    if config.recompute != most:
        raise PlanError(
            f"stage_recompute {_listed(values)}: recompute is the most that some stage recomputes, {most}, not "
            f"{config.recompute}"
        )
    if config.recompute_modules:
        raise PlanError(f"recompute_modules with stage_recompute, which has those of each stage, as {'+'.join(MODULES[1:3])}")
    if len(config.recompute_layers) > 1:
        for stage, count in enumerate(config.recompute_layers):
            value = values[schedules.rank_of(config.schedule, stage, config.pp)]
            if count and value != "full":
                raise PlanError(
                    f"recompute_layers[{stage}]: {count}, but stage_recompute of its pipeline rank is {value}, not full; 0"
                )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
