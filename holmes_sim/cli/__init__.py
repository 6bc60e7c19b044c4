"""The command line: parses arguments and prints tables or JSON, and ends with one of `EXIT_CODES`.

`commands/` has one file per command. Slow imports are inside the functions, so that --help prints at once.
"""

from __future__ import annotations

import atexit
import functools
import gc
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.main import get_command

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The error that typer raises for a command line that it cannot parse. Typer has no public name for this class, and the module
that defines it differs by version; the class is the direct base class of `BadParameter`."""
EXIT_CODES = {
    0: "done; also a search that Ctrl-C ended with a plan",
    1: "a rank that torchrun started failed; or a fault of holmes-sim itself, with a traceback",
    2: "wrong input: a file, an option, a target that cannot express the plan, or a missing library or device",
    3: "right input, but no plan exists; the error says what would help",
    130: "ended by Ctrl-C without a plan, or a sweep that is not complete",
}
"""Exit code -> when a command ends with it."""
GC_THRESHOLD = 5_000_000
"""Number of new objects after which Python's cyclic garbage collector runs (default of Python 3.11: 700). A command
creates many objects that live until it ends, and hardly any cycles, so that frequent collections only cost time. Guess."""


def application() -> typer.Typer:
    """The typer application with all commands."""
    from holmes_sim.cli import commands

    app = typer.Typer(
        epilog="Begin with: holmes-sim plan holmes-hybrid-4 -o plan.json",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for command in commands.in_order():
        app.command(command.NAME, epilog=f"Example: {command.EXAMPLE}")(command.command)
    return app


@functools.cache
def _parser() -> Callable[..., Any]:
    """What parses arguments and runs a command. To build it from the signatures of all commands takes 50 ms, so that a process
    that runs several command lines, such as that of the tests, builds it once."""
    return get_command(application())


def _version(wanted: bool) -> None:
    if wanted:
        from sim import __version__

        sys.stdout.write(f"holmes-sim {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Simulate and plan the training of large models on heterogeneous clusters."""


def main() -> None:
    """Run the command line. Wrong input prints error lines on stderr and sets the exit code, without a traceback."""
    from sim.errors import HolmesError

    gc.set_threshold(GC_THRESHOLD)
    atexit.register(gc.freeze)  # else Python looks for cycles in all objects before it ends: seconds after a long search
    try:
        sys.exit(_parser()(prog_name="holmes-sim", standalone_mode=False) or 0)
    except UsageError as error:
        sys.stderr.write(_usage_message(error))
        sys.exit(2)
    except HolmesError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


def _workload_key(error: Any) -> str:
    """The key of a workload that an unknown option names, for a command that can set it; empty for others."""
    key = (getattr(error, "option_name", None) or "").strip("-").replace("-", "_")
    options = [option for parameter in error.ctx.command.params for option in parameter.opts] if error.ctx else []
    if not key or "--set" not in options:
        return ""
    from sim.formats.topology_facts import WorkloadFacts

    return key if key in WorkloadFacts.model_fields else ""


def _usage_message(error: Any) -> str:
    """One line that says what is wrong with a command line, with similar names or a correct example.

    Empty if no arguments were given: then typer has printed the help already.
    """
    from holmes_sim.cli import commands

    near = getattr(error, "possibilities", None)
    words = " ".join((error.message if near else error.format_message()).split()).removesuffix(".")
    if not words:
        return ""
    words = words[0].lower() + words[1:].replace(". Did you mean", "; did you mean").replace(": Input should", ": it should")
    examples = {command.NAME: command.EXAMPLE for command in commands.in_order()}
    command_name = error.ctx.info_name if error.ctx else ""
    if key := _workload_key(error):
        words += f"; --set workload.{key}=VALUE sets it"
    elif near:
        words += f"; did you mean {' or '.join(sorted(near))}?"
    elif words.startswith("missing ") and command_name in examples:
        words += f"; for example: {examples[command_name]}"
    elif command_name and command_name not in examples and "did you mean" not in words:
        words += "; holmes-sim --help lists all commands"
    return f"error: {words}\n"
