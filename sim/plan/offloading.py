"""What host memory keeps of a plan (`config.offload`): optimizer state, weights and gradients with it, or activations."""

from __future__ import annotations

from sim.errors import NotModelled, PlanError

OPTIMIZER = "optimizer"
"""Optimizer state in host memory (`sim.kernels.offload`); Megatron-LM's --optimizer-cpu-offload, and DeepSpeed's
offload_optimizer."""
PARAMETERS = "parameters"
"""Beside `OPTIMIZER`, weights and gradients in host memory, which travel to the device and back group by group
(`sim.kernels.layer_groups`)."""
ACTIVATIONS = "activations"
"""What layers keep for their backward, in host memory from the forward until then (`sim.kernels.activation_copies`);
Megatron-LM's --cpu-offloading-num-layers."""
LAYERS_ON_DEVICE = 3
"""Layers whose activations are on the device where hosts keep them: the one that computes, one on its way to the host, and one
on its way back. Transformer Engine keeps two of a model without a pipeline, whose forwards and backwards do not alternate."""
WORDS = (OPTIMIZER, PARAMETERS, ACTIVATIONS)
"""All that hosts can keep."""
SINGLE_PEER = {"tp": 1, "pp": 1, "dp": 1, "cp": 1, "ep": 1, "vpp": 1, "zero_stage": 0, "schedule": "gpipe"}
"""What a plan with `PARAMETERS` must have: a single device, whose microbatches pass the layers one group after the other, as
the forwards and then the backwards of GPipe."""
CHOICES = {
    "none": (),
    OPTIMIZER: (OPTIMIZER,),
    PARAMETERS: (OPTIMIZER, PARAMETERS),
    ACTIVATIONS: (ACTIVATIONS,),
    f"{OPTIMIZER}+{ACTIVATIONS}": (OPTIMIZER, ACTIVATIONS),
}  # fmt: skip
"""The values that a user may pin -> what hosts keep."""


class Offloading:
    """What the hosts keep of a plan, by its `offload`."""

    __slots__ = ()
    offload: tuple[str, ...]

    @property
    def offloads_optimizer(self) -> bool:
        """Whether the hosts keep the optimizer state and run the optimizer."""
        return OPTIMIZER in self.offload

    @property
    def offloads_parameters(self) -> bool:
        """Whether the hosts keep weights and gradients, too, which travel to the device and back group by group."""
        return PARAMETERS in self.offload

    @property
    def offloads_activations(self) -> bool:
        """Whether the hosts keep what layers need for their backward."""
        return ACTIVATIONS in self.offload


def choice_of(offload: tuple[str, ...]) -> str:
    """The value of `CHOICES` with which hosts keep this; the words themselves where there is none."""
    return next((name for name, words in CHOICES.items() if set(words) == set(offload)), "+".join(offload))


def check_words(offload: tuple[str, ...]) -> None:
    """Raise NotModelled, or PlanError, for what hosts cannot keep."""
    if not offload:
        return
    if set(offload) - set(WORDS):
        raise NotModelled(f"offload {', '.join(offload)} is not modelled; {', '.join(WORDS)}")
    if PARAMETERS in offload and ACTIVATIONS in offload:
        raise NotModelled(f"offload {', '.join(offload)}: groups of weights and activations on one link are not modelled")
    if offload == (PARAMETERS,):
        raise PlanError(f"offload {PARAMETERS} needs {OPTIMIZER}, too: gradients stay on the host")


def check_single_peer(config: object, offload: tuple[str, ...]) -> None:
    """Raise NotModelled where hosts keep the parameters of a plan whose configuration is not that of a `SINGLE_PEER`."""
    others = [f"{key} {getattr(config, key)}" for key, value in SINGLE_PEER.items() if getattr(config, key) != value]
    if PARAMETERS in offload and others:
        only = ", ".join(f"{key} {value}" for key, value in SINGLE_PEER.items())
        raise NotModelled(f"offload {PARAMETERS} with {', '.join(others)}: single devices are modelled ({only})")
