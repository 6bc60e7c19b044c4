"""Every command of the command line: description, example, order, pinned dimensions, and early checks of output files."""

from __future__ import annotations

import inspect
import shlex

import pytest
import typer

from holmes_sim import commands as face
from holmes_sim import running
from holmes_sim.cli import application, commands, options
from planner.request import Wishes

COMMANDS = commands.in_order()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.NAME)
def test_a_command_has_a_description_and_an_example(command):
    assert inspect.getdoc(command.command).endswith(".")
    assert command.EXAMPLE.startswith(f"holmes-sim {command.NAME} ")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.NAME)
def test_the_example_of_a_command_is_parsed(command):
    """Arguments and options of the example are parsed; the command is not run. A redirection with `>` is left out."""
    words = shlex.split(command.EXAMPLE.partition(" > ")[0])[2:]
    group = typer.main.get_command(application())
    context = group.commands[command.NAME].make_context(command.NAME, words)
    assert context.params


def test_examples_run(run, tmp_path, monkeypatch):
    """The quick examples, in the order in which a reader tries them, with degrees that leave one layout."""
    monkeypatch.chdir(tmp_path)
    pins = ("--tp", 2, "--pp", 2, "--dp", 8, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    example = {command.NAME: shlex.split(command.EXAMPLE.partition(" > ")[0])[1:] for command in COMMANDS}
    assert run(*example["plan"], *pins, "--for", "megatron").code == 0
    for name in ("simulate", "show", "export", "goodput", "list", "schema"):
        assert run(*example[name]).code == 0, name
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "timeline.json", "step.png", "fleet.png", "launch"}


def test_the_main_help_shows_a_first_command(run):
    assert "Begin with: holmes-sim plan holmes-hybrid-4 -o plan.json" in " ".join(run("--help").out.split())


def test_commands_are_listed_in_their_order():
    names = [command.name for command in application().registered_commands]
    assert names == [command.NAME for command in COMMANDS]
    assert names[:6] == ["init", "check", "plan", "simulate", "compare", "score"]
    assert len({command.ORDER for command in COMMANDS}) == len(COMMANDS)


def test_a_pinned_command_takes_every_dimension_in_place_of_the_wishes():
    seen = []

    @options.pinned
    def command(topo: str, wishes: Wishes, limit: float = 1.0) -> None:
        """What it is for."""
        seen.append((topo, wishes, limit))

    given = dict.fromkeys(name for name in inspect.signature(command).parameters if name not in ("topo", "limit"))
    assert set(given) == set(Wishes.__dataclass_fields__)
    command(topo="here", limit=2.0, **given | {"tp": 2, "ep": 4, "zero_shard_size": 8, "offload": "optimizer"})
    assert seen == [("here", Wishes(tp=2, ep=4, zero_shard_size=8, offload="optimizer"), 2.0)]


@pytest.mark.parametrize(
    "arguments", [("plan", "dgx-a100-128"), ("run", "PLAN", "--local"), ("lab", "PLAN")], ids=lambda a: a[0]
)
def test_output_files_are_checked_before_the_work(arguments, tmp_path, run, monkeypatch):
    """Nothing is planned or run: planning and running are replaced by None and would fail."""
    plan, output = tmp_path / "plan.json", tmp_path / "nosuch" / "output.json"
    pins = ("--tp", 2, "--pp", 2, "--dp", 8, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    assert run("plan", "holmes-hybrid-4", "--strategy", "megatron", *pins, "-o", plan).code == 0
    for module, name in ((face, "plan"), (running, "run_here"), (running, "run_in_lab")):
        monkeypatch.setattr(module, name, None)
    ended = run(*(plan if word == "PLAN" else word for word in arguments), "-o", output)
    assert (ended.code, ended.err) == (2, f"error: {output}: cannot be written: No such file or directory\n")
