"""What is exported today is what the targets' own programs read as the plan, when they were last asked (`make test-peers`)."""

from __future__ import annotations

import pytest

from tests.peers import exported


@pytest.mark.parametrize("target", exported.readers())
def test_what_is_exported_has_been_read(target):
    verdicts = exported.kept(target)["verdicts"]
    today = {name: exported.digest(launch) for name, _, launch in exported.launches(target)}
    assert today == {name: verdict["digest"] for name, verdict in verdicts.items()}, "run make test-peers"
    assert all(verdict["read"] for verdict in verdicts.values())
