"""What is exported today is what the targets' own programs read as the plan, when they were last asked (`make test-peers`)."""

from __future__ import annotations

import pytest

from tests.peers import exported


@pytest.mark.parametrize("target", exported.readers())
def test_what_is_exported_has_been_read(target):
    kept = exported.kept(target)
    verdicts = kept["verdicts"]
    today = {name: exported.digest(launch) for name, _, launch in exported.launches(target)}
    read = {name: digest for name, digest in today.items() if name not in kept["unread"]}
    assert read == {name: verdict["digest"] for name, verdict in verdicts.items()}, "run make test-peers"
    assert set(kept["unread"]) <= set(today)
    assert all(verdict["read"] for verdict in verdicts.values())


def test_only_slurm_has_exports_that_nobody_has_read_yet():
    assert [target for target in exported.readers() if exported.kept(target)["unread"]] in ([], ["slurm"])
