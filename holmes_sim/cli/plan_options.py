"""Options of `holmes-sim plan` that exclude or need each other."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import HolmesError

OTHER_SEARCHES = ("--strategy", "--objective")
EXCLUDES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "--json-lines",
        ("--json", "--explain", "--pareto", "--shortlist"),
        "--json-lines prints the search for one plan; leave out --json, --explain, --pareto and --shortlist",
    ),
    (
        "--tokens",
        ("--json", "--json-lines", "--pareto", "--shortlist"),
        "--tokens prints a table for one plan; `holmes-sim goodput PLAN --tokens N --json` prints JSON",
    ),
    (
        "--shortlist",
        (*OTHER_SEARCHES, "--pareto", "--explain", "--chart"),
        "--shortlist uses strategy certified and the step time; leave out --strategy, --objective, --pareto, --explain "
        "and --chart",
    ),
    ("--shortlist", ("--for",), "--shortlist has its target from --to; leave out --for"),
    ("--shortlist", ("--sync",), "--shortlist proposes plans of synchronous training; leave out --sync"),
    (
        "--sync",
        (*OTHER_SEARCHES, "--explain", "--json-lines", "--to", "--runs"),
        "--sync uses strategy certified and the step time; leave out --strategy, --objective, --explain, --json-lines, --to "
        "and --runs",
    ),
    (
        "--pareto",
        (*OTHER_SEARCHES, "--explain"),
        "--pareto uses strategy certified and all objectives; leave out --strategy, --objective and --explain",
    ),
)
"""Option, options that it excludes, and what is wrong."""
NEEDS = (
    ("--budget", "--tokens", "--budget needs --tokens, the number of tokens that it pays for, such as 2T"),
    ("--days", "--tokens", "--days needs --tokens, the number of tokens that are trained in them, such as 2T"),
    ("--shortlist", "--output", "--shortlist writes a folder for each plan; give the folder with -o FOLDER"),
    ("--runs", "--shortlist", "--runs needs --shortlist; holmes-sim calibrate --runs FOLDER fits a stack for --stack"),
    ("--to", "--shortlist", "--to needs --shortlist; `holmes-sim export PLAN --to TARGET` writes the launch of one plan"),
    ("--chart", "--pareto", "--chart needs --pareto; `holmes-sim simulate PLAN --chart FILE` draws a plan"),
)
"""Option, the option that it needs, and what is wrong without it."""


def check(options: Mapping[str, bool]) -> None:
    """Check options together; the value says whether an option is used. Raises HolmesError."""
    for option, excluded, fault in EXCLUDES:
        if options[option] and any(options[other] for other in excluded):
            raise HolmesError(fault)
    for option, needed, fault in NEEDS:
        if options[option] and not options[needed]:
            raise HolmesError(fault)
