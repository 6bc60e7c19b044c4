"""Runs two steps of rank 0 of some plans on a device that does not exist, and prints the devices of its tensors afterwards.

A tensor of torch's FakeTensorMode has a shape and a device, but no values; an operation on tensors of two devices raises. There
are no other ranks: collectives and messages do nothing, and a job runs when it is submitted. This is a program of its own,
because a process can register only one device name.

    python fake_device.py PLAN...
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

from holmes_sim.torch_backend import comm_threads, communication, executor, training_worker
from holmes_sim.torch_backend.groups import groups_of
from holmes_sim.torch_backend.recorder import Recorder
from sim.formats import planfile

SETTLED: list[torch.device] = []
CARRIED: list[str] = []


class AtOnce:
    """A communication thread that runs each job when it is submitted."""

    def __init__(self, name: str, device: torch.device):
        self.device = device

    def submit(self, work: Callable[[], None]) -> comm_threads.Job:
        comm_threads.synchronize(self.device)
        job = comm_threads.Job(work, self.device)
        job.run()
        return job

    def enqueue(self, posting: Callable[[], Callable[[], None]]) -> comm_threads.Job:
        job = comm_threads.Job(lambda: None, self.device, posting=posting)
        job.post()
        job.run()
        return job


def received(buffer: torch.Tensor, group: object, source: int, tag: int) -> Callable[[], None]:
    CARRIED.append(f"receive {buffer.device.type}")
    return lambda: None


def nobody(options: object, _: object = None) -> FakeProcessGroup:
    return FakeProcessGroup._create_internal(options.group_rank, options.group_size)


def pretend() -> None:
    """Make the device and the process group that do nothing known to torch, and let jobs run at once."""
    _setup_privateuseone_for_python_backend("pretended")
    for module in (executor, training_worker, comm_threads):
        module.synchronize = SETTLED.append
    executor.CommThread = executor.ReceiveThread = AtOnce
    communication.receive = received
    communication.send = lambda value, group, target, tag: CARRIED.append(f"send {value.device.type}")
    dist.Backend.register_backend("nobody", nobody, extended_api=True, devices=["cpu", "pretended"])


def run(path: str) -> None:
    """Run a plan and print a line of JSON."""
    SETTLED.clear()
    CARRIED.clear()
    plan = planfile.load(Path(path))
    dist.init_process_group("nobody", store=FakeStore(), rank=0, world_size=plan.config.world_size)
    groups = {group.kind: dist.new_group(list(group.ranks)) for group in groups_of(plan, 0)}
    with FakeTensorMode():
        worker = training_worker.TrainingWorker(
            plan, 0, groups, lambda *what: running.timed_collective(*what), 0, torch.device("pretended", 0)
        )
        running = executor.Executor(plan, 0, groups, worker, Recorder())
        running.step()
        running.step()
    segments = [segment for bucket in worker.every for segment in bucket.segments]
    held = {
        "weights": [value for stage in worker.stages.values() for block in stage.blocks for value in block.parameters()],
        "buffers": [value for segment in segments for value in (segment.flat, segment.grad, segment.master)],
        "optimizer": [values[name] for values in worker.optimizer.adam.state.values() for name in ("exp_avg", "exp_avg_sq")],
        "inputs": list(worker.inputs.values()),
        "loss": [worker.loss] if isinstance(worker.loss, torch.Tensor) else [],
    }
    facts: dict[str, object] = {name: sorted({str(value.device) for value in some}) for name, some in held.items()}
    facts["messages"] = sorted(set(CARRIED))
    facts["settled"] = sorted(map(str, set(SETTLED)))
    facts["steps"] = worker.step
    sys.stdout.write(json.dumps(facts) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    pretend()
    for path in sys.argv[1:]:
        run(path)
    sys.stdout.flush()
    os._exit(0)  # autograd's thread of a pretended device may not be joined where torch is torn down, which aborts
