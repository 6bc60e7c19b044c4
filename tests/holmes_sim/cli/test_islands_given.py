"""Commands that take something else than a plan of islands say so in one line, and which command helps."""

from __future__ import annotations

import pytest

from sim.formats import islandsfile
from tests.island_plans import islands


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("given") / "islands.json"
    path.write_text(islandsfile.to_json(islands()))
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sweep FILE", "a study is expected; `holmes-sim sweep TOPO KEY=VALUES --sync any` plans islands of a topology"),
        ("sweep FILE plan.tp=1", "a topology is expected; `--sync any` plans islands of a topology"),
        ("what-if FILE", "a topology is expected; `--sync any` plans islands of a topology"),
        ("plan FILE", "a topology is expected; `--sync any` plans islands of a topology"),
        ("trunk FILE", "a topology is expected; `holmes-sim show FILE` prints the islands"),
        ("serve FILE", "a topology is expected; `holmes-sim report FILE -o page.html` makes a page"),
        ("check FILE", "a topology is expected; `holmes-sim report FILE -o page.html` has its warnings"),
        ("compare FILE", "a topology or a plan is expected; `holmes-sim plan TOPO --sync any` compares sync strategies"),
        (
            "score FILE --topo two-sites-trunk",
            "a launch is expected; `holmes-sim simulate FILE` says what the islands should reach",
        ),
        (
            "score train.sh --topo FILE",
            "a topology is expected; `holmes-sim simulate FILE` says what the islands should reach",
        ),
        (
            "replan FILE --lost east/node0",
            "a plan of one island is expected; `holmes-sim simulate FILE --leave 0@2h` simulates that island 0 leaves",
        ),
        (
            "place-experts FILE --counts counts.yaml",
            "a plan of one island is expected; each entry of its key `islands` is one",
        ),
    ],
)
def test_a_plan_of_islands_in_place_of_something_else(run, file, words, expected):
    seen = run(*(word.replace("FILE", str(file)) for word in words.split()))
    line = f"error: {file}:2: format: this is a plan of islands; {expected.replace('FILE', str(file))}\n"
    assert (seen.code, seen.out, seen.err) == (2, "", line)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("validate --cases FILE", "cases"),
        ("plan two-sites-trunk --require FILE", "require"),
        ("what-if two-sites-trunk --profile FILE", "profile"),
    ],
)
def test_a_file_of_another_kind_is_one_line(run, file, words, kind):
    seen = run(*(word.replace("FILE", str(file)) for word in words.split()))
    line = f"{file}:2: format: 'holmes-sim/islands/1' is another kind of file; 'holmes-sim/{kind}/1' is expected"
    assert (seen.code, seen.out, seen.err) == (2, "", f"error: {line}\n")
