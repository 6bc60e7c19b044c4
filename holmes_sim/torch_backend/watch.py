"""Ranks that look after each other: where one fails, all end, and say why.

Each rank counts on in the launch's store, and looks whether its neighbour still does; a rank that fails leaves its reason
there. Whoever finds a reason ends. A rank whose host is gone stands still, which its neighbour tells after SILENCE seconds."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import torch.distributed as dist

LOOK = 0.5
SILENCE = 30.0
FAILED = 1
"""Exit status of a rank that ends because it or another failed."""


class Watch:
    """A thread that looks after the launch, from its start until `close`."""

    def __init__(self, store: dist.Store, rank: int, ranks: int, end: Callable[[int], None] = os._exit):
        self.store, self.rank, self.ranks, self.end = store, rank, ranks, end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        neighbour, count, seen, silent = (self.rank + 1) % self.ranks, 0, "", 0.0
        while not self._closed.wait(LOOK):
            count += 1
            try:
                self.store.set(f"alive/{self.rank}", str(count))
                if self.store.check(["failed"]):
                    self._stop(self.store.get("failed").decode())
                here = self.store.get(f"alive/{neighbour}").decode() if self.store.check([f"alive/{neighbour}"]) else ""
                silent = silent + LOOK if here == seen else 0.0
                seen = here
                if silent >= SILENCE and here != "done":
                    self.fail(f"rank {neighbour} has not been heard of for {SILENCE:.0f} s")
            except RuntimeError:
                if not self._closed.is_set():
                    self._stop("rank 0, which keeps the launch's store, is gone")

    def fail(self, reason: str) -> None:
        """End all ranks for a reason."""
        try:
            self.store.compare_set("failed", "", reason)
            first = self.store.get("failed").decode()
        except RuntimeError:
            first = reason
        self._stop(first)

    def _stop(self, reason: str) -> None:
        if not self._closed.is_set():
            sys.stderr.write(f"error: {reason}\n")
            sys.stderr.flush()
            self.end(FAILED)

    def close(self) -> None:
        """This rank is done; nobody shall miss it."""
        self._closed.set()
        self._thread.join(timeout=5 * LOOK)
        self.store.set(f"alive/{self.rank}", "done")
