"""Options of holmes-sim plan that exclude or need each other, and the words that ask for a topology again."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim.cli import plan_options, several_plans
from planner.request import Wishes
from sim.errors import HolmesError

NONE = dict.fromkeys(
    (
        "--strategy", "--objective", "--pareto", "--explain", "--chart", "--shortlist", "--for", "--to", "--runs", "--sync",
        "--tokens", "--budget", "--days", "--output", "--json", "--json-lines",
    ),
    False,
)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--shortlist", "--output", "--to", "--runs", "--json"),
        ("--pareto", "--chart", "--output", "--for", "--json"),
        ("--sync", "--for", "--output", "--json"),
        ("--tokens", "--budget", "--days", "--explain", "--output", "--strategy"),
        ("--tokens", "--budget", "--days", "--sync", "--output"),
        ("--sync", "--pareto", "--chart", "--output", "--json"),
        ("--json-lines", "--objective", "--output"),
    ],
)
def test_options_that_go_together(options):
    plan_options.check(NONE | dict.fromkeys(options, True))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--json-lines", "--explain"), "--json-lines prints the search for one plan; leave out --json, --explain, "),
        (("--tokens", "--json"), "--tokens prints a table for one plan; "),
        (("--budget",), "--budget needs --tokens"),
        (("--days",), "--days needs --tokens"),
        (("--shortlist", "--output", "--objective"), "--shortlist uses strategy certified and the step time; "),
        (("--shortlist", "--output", "--for"), "--shortlist has its target from --to; leave out --for"),
        (("--shortlist", "--output", "--sync"), "--shortlist proposes plans of synchronous training; leave out --sync"),
        (("--shortlist",), "--shortlist writes a folder for each plan; give the folder with -o FOLDER"),
        (("--sync", "--explain"), "--sync uses strategy certified and the step time; "),
        (("--runs",), "--runs needs --shortlist; "),
        (("--to",), "--to needs --shortlist; "),
        (("--pareto", "--strategy"), "--pareto uses strategy certified and all objectives; "),
        (("--chart",), "--chart needs --pareto; "),
    ],
)
def test_options_that_do_not_go_together(options, fault):
    with pytest.raises(HolmesError, match=f"^{fault}"):
        plan_options.check(NONE | dict.fromkeys(options, True))


def test_words_that_ask_again():
    options = {"--model": None, "--seq-len": 2048, "--stack": "my stack.yaml", "--require": Path("need.yaml")}
    words = several_plans.again("topo.yaml", options, ["a.b=1 s"], Wishes(tp=2))
    assert words == "topo.yaml --seq-len 2048 --stack 'my stack.yaml' --require need.yaml --set 'a.b=1 s' --tp 2"
