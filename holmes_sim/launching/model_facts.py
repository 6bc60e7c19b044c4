"""Facts of a model that no step time depends on, as a target takes them: written where known, otherwise said to be assumed.

A target lists its `Option`s; `written` gives their words in its files, `assumed` a line for the rest. Facts are those of
`sim.workload.launch_facts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sim.workload.model import Model

Value: TypeAlias = str | int | float | bool
Words: TypeAlias = dict[str, Value]


def nothing(model: Model) -> Words:
    """No words: the target does not take the fact."""
    return {}


@dataclass(frozen=True, slots=True)
class Option:
    """How a target takes a fact of a model.

    - `fact`: key of the fact.
    - `usual`: value of the fact that the target has where its files say nothing.
    - `name`: what the user sets instead, such as `--rotary-base 10000`; empty where nothing sets it.
    - `words`: what the files say of a known value other than `usual`, or of `usual` where that can be said too.
    """

    fact: str
    usual: Value
    name: str = ""
    words: Callable[[Model], Words] = nothing


Options: TypeAlias = tuple[Option, ...]


def written(model: Model, options: Options) -> Words:
    """The words for all facts that are known and that the target takes."""
    found: Words = {}
    for option in options:
        if option.fact in model.launch.known() and _applies(option, model):
            found |= option.words(model)
    return found


def assumed(model: Model, options: Options, framework: str) -> Iterator[str]:
    """A line with the facts that are not known, and one for each known fact that the target cannot be told."""
    known = model.launch.known()
    of_model = [option for option in options if _applies(option, model)]
    unknown = [option for option in of_model if option.fact not in known]
    if unknown:
        values = ", ".join(option.name or f"{option.fact} {_shown(option.usual)}" for option in unknown)
        keys = ", ".join(option.fact for option in unknown)
        one = len(unknown) == 1
        yield (
            f"{values} ({framework}'s default{'' if one else 's'}): the model says no {keys}; "
            f"set {'it' if one else 'them'} to your model's."
        )
    for option in of_model:
        value = known.get(option.fact, option.usual)
        if value != option.usual and not option.words(model):
            yield f"{option.fact} {_shown(value)} of {model.name} is not written: {framework} has {_shown(option.usual)} here."


def listed(model: Model) -> str:
    """The known facts of a model, for users who build it themselves; empty where there are none."""
    return ", ".join(f"{key} {_shown(value)}" for key, value in model.launch.known().items())


def _applies(option: Option, model: Model) -> bool:
    """Whether a model can have the fact: with learned positions it has no rotary ones, and with gelu all its biases."""
    if model.learned_positions and option.fact in ("rope_theta", "rope_scaling", "rotary_fraction"):
        return False
    if option.fact == "rotary_fraction" and model.launch.rope_theta and model.launch.rotary_fraction is None:
        return False  # config.json of models that rotate whole heads do not say it
    return not (model.mlp == "gelu" and option.fact == "qkv_bias")


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
