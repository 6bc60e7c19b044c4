"""Messages that are compressed between clusters, executed with torch: int8.

Each block of values is cut into equal steps between its smallest and its largest value (`sim.compression.int8`). The sender
codes a message on its device before it leaves, the receiver decodes it when its stage takes it."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.compression.int8 import BLOCK
from sim.kernels.messages import Messages
from sim.plan.plan import Plan
from sim.plan.program import Action

STEPS = 255
"""Steps between the smallest and the largest value of a block."""


class MessageCode:
    """What becomes of the messages of a pipeline rank on their way to other pipeline ranks."""

    def __init__(self, plan: Plan, pp_rank: int):
        messages, pp = Messages(plan), plan.config.pp
        self.coded = {peer for peer in range(pp) if messages.is_compressed(pp_rank, peer)}

    def encode(self, action: Action, value: Tensor) -> Tensor:
        """A message as it is sent."""
        return encoded(value) if action.peer in self.coded else value

    def buffer(self, action: Action, whole: Tensor) -> Tensor:
        """A buffer in host memory for what is sent of a message like `whole`."""
        return torch.empty(coded_bytes(whole.numel()), dtype=torch.uint8) if action.peer in self.coded else whole

    def decode(self, action: Action, received: Tensor, whole: Tensor) -> Tensor:
        """The message, with the shape and type of `whole`, from what was received."""
        return decoded(received, whole) if action.peer in self.coded else received


def coded_bytes(count: int) -> int:
    """Bytes of the code of so many values: one each, and the smallest value and the width of a step of each block in fp32."""
    return count + 8 * -(-count // BLOCK)


def encoded(value: Tensor) -> Tensor:
    """The code of a tensor of any shape and floating-point type: its steps, then the facts of the blocks."""
    values = value.detach().reshape(-1).float()
    rows = torch.cat([values, values[-1:].expand(-values.numel() % BLOCK)]).view(-1, BLOCK)
    least, most = rows.aminmax(dim=1, keepdim=True)
    width = (most - least) / STEPS
    steps = ((rows - least) / width.clamp_min(torch.finfo(torch.float32).tiny)).round_().clamp_(0, STEPS)
    facts = torch.cat([least, width], 1).view(-1).view(torch.uint8)
    return torch.cat([steps.to(torch.uint8).view(-1)[: values.numel()], facts])


def decoded(code: Tensor, like: Tensor) -> Tensor:
    """The values of a code, with the shape and type of `like`."""
    count = like.numel()
    least, width = code[count:].clone().view(torch.float32).view(-1, 2).repeat_interleave(BLOCK, 0)[:count].unbind(1)
    return (code[:count].float() * width + least).to(like.dtype).view(like.shape)
