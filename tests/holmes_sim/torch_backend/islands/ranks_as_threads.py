"""Ranks of gloo groups as threads of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Result = TypeVar("Result")


class Counting:
    """A gloo group that counts the bytes that this rank sends to others."""

    def __init__(self, group: dist.ProcessGroup):
        self.group, self.sent = group, 0
        self.rank, self.size, self.recv = group.rank, group.size, group.recv

    def send(self, values: list[torch.Tensor], target: int, tag: int) -> Any:
        self.sent += sum(value.nbytes for value in values)
        return self.group.send(values, target, tag)


def together(ranks: int, work: Callable[[Any], Result]) -> list[Result]:
    """The results of `work`, called with the group of each rank, all at once."""
    store, found, failed = dist.HashStore(), dict[int, Result](), list[BaseException]()

    def run(rank: int) -> None:
        try:
            group = dist.ProcessGroupGloo(dist.PrefixStore("ranks", store), rank, ranks, timedelta(seconds=20))
            found[rank] = work(Counting(group))  # type: ignore[arg-type]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [found[rank] for rank in range(ranks)]
