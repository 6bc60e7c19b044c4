"""Exchanges over gloo."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import communication  # noqa: E402


class _Group:
    """Rank 1 of three ranks of a gloo group; it lists its messages, and what it receives is its own number of a sender."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, int, list[float]]] = []

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 3

    def recv(self, values: list[torch.Tensor], source: int, tag: int) -> _Group:
        values[0].fill_(float(source))
        self.messages.append(("recv", source, values[0].tolist()))
        return self

    def send(self, values: list[torch.Tensor], target: int, tag: int) -> _Group:
        self.messages.append(("send", target, values[0].tolist()))
        return self

    def wait(self, timeout: timedelta) -> None:
        pass


def test_all_receives_are_posted_before_the_first_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication.dist, "get_backend", lambda group: "gloo")
    group, found = _Group(), torch.full((3,), -1.0)
    communication.all_to_all(found, torch.tensor([10.0, 11.0, 12.0]), group)  # type: ignore[arg-type]
    assert group.messages == [("recv", 0, [0.0]), ("recv", 2, [2.0]), ("send", 2, [12.0]), ("send", 0, [10.0])]
    assert found.tolist() == [0.0, 11.0, 2.0]


def test_parts_without_rows_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication.dist, "get_backend", lambda group: "gloo")
    group, found = _Group(), torch.full((3,), -1.0)
    sent = torch.tensor([10.0, 11.0, 12.0, 13.0])
    communication.all_to_all(found, sent, group, [2, 1, 0], [0, 1, 3])  # type: ignore[arg-type]
    assert group.messages == [("recv", 0, [0.0, 0.0]), ("send", 2, [11.0, 12.0, 13.0])]
    assert found.tolist() == [0.0, 0.0, 10.0]


def test_a_message_may_come_later_than_a_group_may_take_to_connect() -> None:
    """A group with a timeout of half a second; the message is sent after a second."""
    store, found = torch.distributed.HashStore(), torch.zeros(1)

    def rank(own: int) -> None:
        group = torch.distributed.ProcessGroupGloo(store, own, 2, timedelta(seconds=0.5))
        group.set_timeout(timedelta(seconds=60))
        if own:
            time.sleep(1.0)
            communication.send(torch.ones(1), group, 0, 3)
        else:
            communication.receive(found, group, 1, 3)()

    threads = [threading.Thread(target=rank, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.item() == 1.0
