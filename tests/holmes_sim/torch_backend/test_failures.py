"""Bad launches end on every rank, soon, with one clear line."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import HolmesError

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import groups, local, watchdog  # noqa: E402
from holmes_sim.torch_backend.fork_server import RankProcess  # noqa: E402
from holmes_sim.torch_backend.run_options import HOST, RunOptions  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import plan_of  # noqa: E402


def changed(rank: int, **environment: str) -> local.ProcessChange:
    def change(given: RankProcess, number: int) -> RankProcess:
        return dataclasses.replace(given, environment=given.environment | environment) if number == rank else given

    return change


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "3"}, "the launch has 3 ranks, but the plan 2"),
        ({HOST: "a/node7"}, "rank 1 runs on a/node7, but the plan places it on a/node0"),
        ({groups.INTERFACES: '{"intra_node": ["nosuch0"]}'}, "the pp group of ranks [0, 1] on intra_node cannot connect"),
        ({groups.INTERFACES: "eth0"}, "HOLMES_SIM_INTERFACES: 'eth0' should be JSON"),
    ],
)
def test_an_environment_that_contradicts_the_plan_is_refused(
    environment: dict[str, str], message: str, tmp_path: Path, here: local.Local
) -> None:
    plan = plan_of(tmp_path, (3, 2), (2,))
    with pytest.raises(HolmesError) as error:
        here.run(plan, RunOptions(), changed(1, **environment))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def children(of: int) -> list[int]:
    """Processes whose parent is `of`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == of:
            found.append(int(status.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the ranks in /proc")
def test_a_rank_that_dies_ends_all(tmp_path: Path, here: local.Local) -> None:
    plan = plan_of(tmp_path, (3, 2), (2, 2))
    messages: list[str] = []

    def run() -> None:
        try:
            here.run(plan, RunOptions(steps=1_000_000, compute="paced", scale=1000.0, output=str(tmp_path / "timeline.json")))
        except HolmesError as error:
            messages.append(str(error))

    def forked() -> set[int]:
        return {rank for server in children(os.getpid()) for rank in children(server)}

    before = forked()
    thread = threading.Thread(target=run)
    thread.start()
    ranks: set[int] = set()
    while len(ranks) < 4:
        time.sleep(0.05)
        ranks = forked() - before
    time.sleep(1.0)
    os.kill(sorted(ranks)[2], signal.SIGKILL)
    thread.join(timeout=60)
    killed = "rank 2 (a/node0/dev2) was killed by signal 9 (SIGKILL)"
    assert messages == [f"{killed}; Linux kills a process so where memory runs out (dmesg names it)"]
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert not (tmp_path / "timeline.json").exists()


def test_a_silent_neighbour_and_a_reason_end_a_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watchdog, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(watchdog, "HEARTBEAT_TIMEOUT", 0.05)
    store, ended = torch.distributed.HashStore(), threading.Event()
    looking = watchdog.Watchdog(store, 0, 2, end=lambda status: ended.set())
    assert ended.wait(10)
    looking.close()
    assert store.get("failed") == b"rank 1 has sent no heartbeat for 0 s"
    ended.clear()
    other = watchdog.Watchdog(store, 1, 2, end=lambda status: ended.set())
    assert ended.wait(10)
    other.close()
    assert set(capsys.readouterr().err.splitlines()) == {"error: rank 1 has sent no heartbeat for 0 s"}


def test_a_rank_that_is_done_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(watchdog, "HEARTBEAT_TIMEOUT", 0.05)
    store, ended = torch.distributed.HashStore(), threading.Event()
    watchdog.Watchdog(store, 1, 2, end=lambda status: ended.set()).close()
    looking = watchdog.Watchdog(store, 0, 2, end=lambda status: ended.set())
    assert not ended.wait(0.3)
    looking.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cp": 2, "cp_algo": "ulysses"}, "cp_algo ulysses (ring, all_gather)"),
        (
            {"recompute": "selective", "recompute_modules": ("layernorm",), "offload": ("activations",)},
            "recompute_modules layernorm with offload activations",
        ),
    ],
)
def test_unsupported_plans_are_refused(config: dict[str, object], message: str, tmp_path: Path, here: local.Local) -> None:
    plan = plan_of(tmp_path, (5,), (2, 2), **config)  # type: ignore[arg-type]
    with pytest.raises(HolmesError, match="the torch backend cannot execute this plan") as error:
        here.run(plan, RunOptions())
    assert message in str(error.value)


def test_a_head_before_the_last_stage_is_refused(tmp_path: Path, here: local.Local) -> None:
    plan = plan_of(tmp_path, (3, 2, 0), (2,))
    early = replace(plan, stages=(plan.stages[0], replace(plan.stages[1], head=True), plan.stages[2]))
    with pytest.raises(HolmesError, match=r"stages\[1\].head \(the last stage has the head\)"):
        here.run(early, RunOptions())
