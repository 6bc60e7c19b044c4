"""Plays steps of a plan's rank 0 on a device that is not there, and prints the devices of what it holds behind them.

torch's FakeTensorMode knows shape and device of a tensor and nothing in it, and raises where an operation gets tensors of two
devices. No other rank is there: exchanges do nothing, and a lane does a job at once. A program of its own, because a process
can name a device of its own once.

    python pretended.py PLAN
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup
from torch._subclasses import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from holmes_sim.torch_backend import exchanges, lanes, player, real
from holmes_sim.torch_backend.groups import groups_of
from holmes_sim.torch_backend.recorder import Recorder
from sim.formats import planfile

SETTLED: list[torch.device] = []
CARRIED: list[str] = []


class AtOnce:
    """A lane whose jobs are done when they come."""

    def __init__(self, name: str, device: torch.device):
        self.device = device

    def do(self, work: Callable[[], None]) -> lanes.Job:
        lanes.settle(self.device)
        job = lanes.Job(work, self.device)
        job.do()
        return job

    def expect(self, ask: Callable[[], Callable[[], None]]) -> lanes.Job:
        job = lanes.Job(lambda: None, self.device, asking=ask)
        job.ask()
        job.do()
        return job


def received(room: torch.Tensor, group: object, of: int, tag: int) -> Callable[[], None]:
    CARRIED.append(f"receive {room.device.type}")
    return lambda: None


def main(path: str) -> None:
    plan = planfile.load(Path(path))
    _setup_privateuseone_for_python_backend("pretended")
    for module in (player, real, lanes):
        module.settle = SETTLED.append
    player.Lane = player.Inbox = AtOnce
    exchanges.receive = received
    exchanges.send = lambda value, group, to, tag: CARRIED.append(f"send {value.device.type}")

    def nobody(options: object, _: object = None) -> FakeProcessGroup:
        return FakeProcessGroup._create_internal(options.group_rank, options.group_size)

    dist.Backend.register_backend("nobody", nobody, extended_api=True, devices=["cpu", "pretended"])
    dist.init_process_group("nobody", store=FakeStore(), rank=0, world_size=plan.config.world_size)
    groups = {group.kind: dist.new_group(list(group.ranks)) for group in groups_of(plan, 0)}
    with FakeTensorMode():
        body = real.Real(plan, 0, groups, lambda *what: playing.told(*what), 0, torch.device("pretended", 0))
        playing = player.Player(plan, 0, groups, body, Recorder())
        playing.step()
        playing.step()
    segments = [segment for bucket in body.every for segment in bucket.segments]
    held = {
        "weights": [value for stage in body.stages.values() for block in stage.blocks for value in block.parameters()],
        "buffers": [value for segment in segments for value in (segment.flat, segment.grad, segment.master)],
        "optimizer": [values[name] for values in body.optimizer.adam.state.values() for name in ("exp_avg", "exp_avg_sq")],
        "inputs": list(body.inputs.values()),
        "loss": [body.loss] if isinstance(body.loss, torch.Tensor) else [],
    }
    facts: dict[str, object] = {name: sorted({str(value.device) for value in some}) for name, some in held.items()}
    facts["messages"] = sorted(set(CARRIED))
    facts["settled"] = sorted(map(str, set(SETTLED)))
    facts["steps"] = body.step
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # autograd's thread of a pretended device may not be joined where torch is torn down, which aborts
