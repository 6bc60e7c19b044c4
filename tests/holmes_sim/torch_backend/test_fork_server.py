"""The fork server of ranks: what it imports is shared by the ranks that it forks."""

from __future__ import annotations

import gc

import pytest

from holmes_sim.torch_backend import fork_server


def test_ranks_do_not_collect_what_the_server_imported():
    """A collection writes to every object that it visits, and so copies its page in each rank: 72 of 86 MiB of a rank."""
    try:
        fork_server._preload()
        assert gc.get_freeze_count() > 100 * len(gc.get_objects())
    finally:
        gc.unfreeze()


GLOO = "RuntimeError: [pair.cc:553] Connection closed by peer [10.1.1.1]:7827. Check the logs of the remote worker"


@pytest.mark.parametrize(
    ("failed", "written", "line"),
    [
        (
            [(1, 1), (0, 1)],
            {1: GLOO, 0: "x\nMemoryError: full"},
            "rank 0 (a/node0/dev0) ended: MemoryError: full",
        ),
        ([(1, 1), (0, 1)], {1: GLOO, 0: "error: the first reason"}, "the first reason"),
        ([(1, 1)], {1: GLOO}, f"rank 1 (a/node0/dev1) ended: {GLOO}"),
        ([(0, 1), (1, 1)], {0: "ValueError: a", 1: "ValueError: b"}, "rank 0 (a/node0/dev0) ended: ValueError: a"),
        ([(0, 1), (1, 2)], {0: "", 1: GLOO}, "rank 0 (a/node0/dev0) ended: exit code 1"),
    ],
)
def test_the_reason_is_not_that_another_rank_has_ended(tmp_path, failed, written, line):
    for number, text in written.items():
        (tmp_path / f"{number}.err").write_text(f"{text}\n")
    processes = [fork_server.RankProcess(f"a/node0/dev{number}", {}, "") for number in range(2)]
    assert fork_server.cause(tmp_path, processes, failed) == line


def test_a_killed_rank_is_the_reason(tmp_path):
    (tmp_path / "0.err").write_text("ValueError: something\n")
    (tmp_path / "1.err").write_text("")
    processes = [fork_server.RankProcess(f"a/node0/dev{number}", {}, "") for number in range(2)]
    found = fork_server.cause(tmp_path, processes, [(0, 1), (1, -9)])
    assert found.startswith("rank 1 (a/node0/dev1) was killed by signal 9 (SIGKILL)")
