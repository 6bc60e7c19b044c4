"""Messages that are compressed between clusters, executed with torch by the codes of `holmes_sim.torch_backend.compressors`.

The sender codes a message on its device before it leaves, the receiver decodes it when its stage takes it."""

from __future__ import annotations

import torch
from torch import Tensor

from holmes_sim.torch_backend.compressors import Codec, codec
from sim.compression import NONE
from sim.kernels.messages import Messages
from sim.plan.plan import Plan
from sim.plan.program import Action


class MessageCode:
    """What becomes of the messages of a pipeline rank on their way to other pipeline ranks. `coded`: these ranks, where
    messages are compressed."""

    def __init__(self, plan: Plan, pp_rank: int):
        messages, text = Messages(plan), plan.config.message_compression
        self.coded = {peer for peer in range(plan.config.pp) if messages.is_compressed(pp_rank, peer)}
        self._codec: Codec | None = codec(text) if text != NONE and self.coded else None

    def _of(self, action: Action) -> Codec | None:
        """The code of the message of a send or receive."""
        return self._codec if action.peer in self.coded else None

    def encode(self, action: Action, value: Tensor) -> Tensor:
        """A message as it is sent."""
        code = self._of(action)
        return code.encode(value.detach().reshape(-1).float()) if code else value

    def buffer(self, action: Action, whole: Tensor) -> Tensor:
        """A buffer in host memory for what is sent of a message like `whole`."""
        code = self._of(action)
        return torch.empty(code.nbytes(whole.numel()), dtype=torch.uint8) if code else whole

    def decode(self, action: Action, received: Tensor, whole: Tensor) -> Tensor:
        """The message, with the shape and type of `whole`, from what was received."""
        code = self._of(action)
        return code.decode(received, whole.numel()).to(whole.dtype).view(whole.shape) if code else received
