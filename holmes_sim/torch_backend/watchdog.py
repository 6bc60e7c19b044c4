"""Watchdog: when one rank fails, all ranks end and report the same reason.

Each rank increments a heartbeat counter in the launch's store and polls the counter of the next rank. A failing rank writes its
reason to the store; every rank that finds a reason ends. If a host is lost, the counter of its rank stops, and the neighbour
reports that after HEARTBEAT_TIMEOUT seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import torch.distributed as dist

POLL_INTERVAL = 0.5
HEARTBEAT_TIMEOUT = 30.0
FAILED = 1
"""Exit status of a rank that ends because any rank failed."""


class Watchdog:
    """A thread that polls the store from its creation until `close`."""

    def __init__(self, store: dist.Store, rank: int, ranks: int, end: Callable[[int], None] = os._exit):
        self.store, self.rank, self.ranks, self.end = store, rank, ranks, end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="watchdog", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        neighbour, count, last, silent = (self.rank + 1) % self.ranks, 0, "", 0.0
        while not self._closed.wait(POLL_INTERVAL):
            count += 1
            try:
                self.store.set(f"alive/{self.rank}", str(count))
                if self.store.check(["failed"]):
                    self._stop(self.store.get("failed").decode())
                current = self.store.get(f"alive/{neighbour}").decode() if self.store.check([f"alive/{neighbour}"]) else ""
                silent = silent + POLL_INTERVAL if current == last else 0.0
                last = current
                if silent >= HEARTBEAT_TIMEOUT and current != "done":
                    self.fail(f"rank {neighbour} has sent no heartbeat for {HEARTBEAT_TIMEOUT:.0f} s")
            except RuntimeError:
                if not self._closed.is_set():
                    self._stop("the store of the launch, kept by rank 0 or torchrun, is unreachable")

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
        """Mark this rank as done, so that its neighbour does not report it missing."""
        self._closed.set()
        self._thread.join(timeout=5 * POLL_INTERVAL)
        self.store.set(f"alive/{self.rank}", "done")
