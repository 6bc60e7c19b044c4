"""Engine dask on a real cluster: a scheduler and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import holmes_sim as hs
from sim.errors import HolmesError
from tests.holmes_sim.sweeping.reading import without_seconds
from tests.more import more

pytest.importorskip("distributed", reason="engine dask is not tested: pip install 'holmes-sim[dask]'")
HOME = Path(hs.__file__).resolve().parent.parent
PATIENCE = 120.0


@dataclass(frozen=True)
class Dask:
    """A running cluster."""

    address: str
    workers: tuple[subprocess.Popen, ...]


def started(*arguments: object, log: Path) -> subprocess.Popen:
    with log.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, arguments)],
            cwd=HOME, env=os.environ | {"PYTHONPATH": str(HOME)}, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Dask]:
    folder = tmp_path_factory.mktemp("dask")
    path, here = folder / "scheduler.json", ("--host", "127.0.0.1")
    processes = [
        started("scheduler", *here, "--port", 0, "--dashboard-address", ":0", "--scheduler-file", path, log=folder / "s")
    ]
    try:
        end = time.monotonic() + PATIENCE
        while not path.exists() or not path.read_text().endswith("}"):
            assert processes[0].poll() is None and time.monotonic() < end, (folder / "s").read_text()
            time.sleep(0.05)
        address = json.loads(path.read_text())["address"].removeprefix("tcp://")
        alone = ("--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)
        processes += [started("worker", address, *here, *alone, log=folder / f"w{number}") for number in (1, 2)]
        yield Dask(address, tuple(processes[1:]))
    finally:
        for process in processes:
            process.kill()
            process.wait()


@more
def test_a_cluster_answers_what_this_machine_answers_and_survives_the_loss_of_a_worker(cluster, tmp_path, monkeypatch):
    """Half of the study by two workers, then one of them is killed at work: the other does what is left."""
    engine, output = f"dask://{cluster.address}", tmp_path / "table.csv"

    def half(done: int, of: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    first = hs.sweep("lab-layouts", engine=engine, output=output, progress=half)
    assert (first.interrupted, first.planned) == (True, 20)

    def killed(done: int, of: int) -> None:
        if done == 30:
            cluster.workers[0].kill()

    rest = hs.sweep("lab-layouts", engine=engine, output=output, progress=killed)
    assert cluster.workers[0].wait() < 0, "a worker was killed"
    assert (rest.interrupted, rest.planned) == (False, 40)
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)  # the scenarios take less time than the start of workers
    assert without_seconds(rest) == without_seconds(hs.sweep("lab-layouts"))


@pytest.mark.parametrize("address", ["", "head", "head:", ":8786", "head:http", "head:65536"])
def test_an_address_that_is_none_is_reported_before_a_client_is_made(quick, address, monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "Client", None)
    with pytest.raises(HolmesError) as wrong:
        hs.sweep(quick("vary: {plan.pp: [1]}\n"), engine=f"dask://{address}")
    assert str(wrong.value) == f"engine dask needs the address of a scheduler, dask://HOST:PORT, not dask://{address}"


def test_no_scheduler_is_one_line(quick, monkeypatch):
    from holmes_sim.sweeping.engines import dask

    monkeypatch.setattr(dask, "WAIT", "0.2s")
    with pytest.raises(HolmesError) as wrong:
        hs.sweep(quick("vary: {plan.pp: [1]}\n"), engine="dask://127.0.0.1:9")
    assert str(wrong.value).startswith("dask://127.0.0.1:9: no scheduler answers: ")
    assert "\n" not in str(wrong.value)
