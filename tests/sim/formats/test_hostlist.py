"""Host lists: literal cases, and compress undoes expand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import TopologyError
from sim.formats.hostlist import compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ("gpu1",)),
        ("gpu[001-003,007]", ("gpu001", "gpu002", "gpu003", "gpu007")),
        ("gpu[8-11]", ("gpu8", "gpu9", "gpu10", "gpu11")),
        ("r[1-2]n[3,5]", ("r1n3", "r1n5", "r2n3", "r2n5")),
        ("a[1-2].site, login, b[09-10]-x", ("a1.site", "a2.site", "login", "b09-x", "b10-x")),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["", "a[1-2", "a]1[", "a[2-1]", "a[x]", "a,,b", "a b", "a[1-99999999]", "a[0-2000][0-2000]"])
def test_a_text_that_is_not_a_host_list_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        expand(text)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (("gpu001", "gpu002", "gpu004"), ("gpu[001-002]", "gpu004")),
        (("gpu9", "gpu10", "gpu11"), ("gpu[9-11]",)),
        (("n2", "n1"), ("n2", "n1")),
        (("a1x", "a2y"), ("a1x", "a2y")),
        (("n08", "n9"), ("n08", "n9")),
        ((), ()),
    ],
)
def test_compress(names: tuple[str, ...], written: tuple[str, ...]) -> None:
    assert compress(names) == written


@given(st.lists(st.from_regex(r"[a-z]{1,2}[0-9]{0,3}(-x)?", fullmatch=True), max_size=12))
def test_compress_is_undone_by_expand(names: list[str]) -> None:
    assert tuple(name for item in compress(names) for name in expand(item)) == tuple(names)
