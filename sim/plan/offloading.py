"""What host memory keeps of a plan (`config.offload`): the optimizer state, and weights and gradients with it."""

from __future__ import annotations

from sim.errors import NotModelled, PlanError

OPTIMIZER = "optimizer"
"""Optimizer state in host memory (`sim.kernels.offload`); Megatron-LM's --optimizer-cpu-offload, and DeepSpeed's
offload_optimizer."""
PARAMETERS = "parameters"
"""Beside `OPTIMIZER`, weights and gradients in host memory, which travel to the device and back group by group
(`sim.kernels.layer_groups`)."""
SINGLE_PEER = {"tp": 1, "pp": 1, "dp": 1, "cp": 1, "ep": 1, "vpp": 1, "zero_stage": 0, "schedule": "gpipe"}
"""What a plan with `PARAMETERS` must have: a single device, whose microbatches pass the layers one group after the other, as
the forwards and then the backwards of GPipe."""


def check_words(offload: tuple[str, ...]) -> None:
    """Raise NotModelled, or PlanError, for what hosts cannot keep."""
    if set(offload) - {OPTIMIZER, PARAMETERS}:
        what = f"host memory of activations is not modelled; {OPTIMIZER}, and {PARAMETERS} with it"
        raise NotModelled(f"offload {', '.join(offload)}: {what}")
    if offload == (PARAMETERS,):
        raise PlanError(f"offload {PARAMETERS} needs {OPTIMIZER}, too: gradients stay on the host")


def check_single_peer(config: object, offload: tuple[str, ...]) -> None:
    """Raise NotModelled where hosts keep the parameters of a plan whose configuration is not that of a `SINGLE_PEER`."""
    others = [f"{key} {getattr(config, key)}" for key, value in SINGLE_PEER.items() if getattr(config, key) != value]
    if PARAMETERS in offload and others:
        only = ", ".join(f"{key} {value}" for key, value in SINGLE_PEER.items())
        raise NotModelled(f"offload {PARAMETERS} with {', '.join(others)}: single devices are modelled ({only})")
