"""A profiling session: the device's ceilings, then layers by model, tp and microbatch size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date

import torch

from holmes_sim.profiling import ceilings, layers, machine
from holmes_sim.profiling.results import DeviceProfile
from holmes_sim.torch_backend.buckets import PRECISIONS
from sim.errors import HolmesError
from sim.workload.model import Model


def device(
    models: Sequence[Model],
    seq_len: int,
    sizes: Sequence[int],
    degrees: Sequence[int],
    precision: str | None,
    name: str | None,
    progress: Callable[[str], None] = lambda text: None,
) -> DeviceProfile:
    """Measure the device of this machine. Raises HolmesError, before any measurement, for models that cannot be sharded as
    required."""
    here = machine.at_hand()
    chosen = precision or ("bf16" if here.is_gpu else "fp32")
    if chosen not in PRECISIONS or chosen == "tf32":
        raise HolmesError(f"--precision {chosen!r} cannot be profiled; choose bf16, fp16 or fp32")
    names = [model.name for model in models]
    if doubled := next((one for one in names if names.count(one) > 1), None):
        raise HolmesError(f"two models are named {doubled!r}; a profile identifies models by name")
    for model in models:
        for tp in degrees:
            layers.check(model, seq_len, tp)
    progress("ceilings")
    torch.manual_seed(0)
    top = ceilings.measure(here, chosen)
    rows: list[layers.LayerTimings] = []
    for model in models:
        for tp in degrees:
            progress(f"{model.name}, tp {tp}")
            rows += layers.measure(model, seq_len, tp, sizes, chosen, here)
    machine.release()
    return DeviceProfile(name or _slug(here.label), here, here.software, date.today().isoformat(), top, tuple(rows))


def _slug(label: str) -> str:
    """A label as part of a file name: `NVIDIA A100-SXM4-80GB` -> `nvidia-a100-sxm4-80gb`."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "device"
