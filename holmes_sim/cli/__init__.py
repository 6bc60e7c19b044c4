"""The command line: arguments in, tables or JSON out; exit codes 0 done, 2 the input is wrong, 3 no plan is feasible.

`commands/` has a file for each command. Heavy imports stand inside the functions, so that --help answers at once.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What is raised where a command line cannot be read: typer has no public name for it, and its place differs by version."""
YOUNG = 200_000
"""Objects made before Python looks for cycles among them: a command makes many that live to its end, and hardly a cycle."""


def application() -> typer.Typer:
    """The command line with all its commands."""
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


def _version(wanted: bool) -> None:
    if wanted:
        from sim import __version__

        sys.stdout.write(f"holmes-sim {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Simulate and plan the training of large models on clusters that are not uniform."""


def main() -> None:
    """Run the command line; an error of the input is its lines on stderr and an exit code, never a traceback."""
    from sim.errors import HolmesError

    gc.set_threshold(YOUNG)
    try:
        sys.exit(application()(prog_name="holmes-sim", standalone_mode=False) or 0)
    except UsageError as error:
        sys.stderr.write(_fault(error))
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


def _fault(error: Any) -> str:
    """What is wrong with a command line, in one line: with the name that was meant, or a command line that is right.

    Empty where nothing was asked: then the help stands on the screen already.
    """
    from holmes_sim.cli import commands

    near = getattr(error, "possibilities", None)
    words = " ".join((error.message if near else error.format_message()).split()).removesuffix(".")
    if not words:
        return ""
    words = words[0].lower() + words[1:].replace(". Did you mean", "; did you mean").replace(": Input should", ": it should")
    examples = {command.NAME: command.EXAMPLE for command in commands.in_order()}
    asked = error.ctx.info_name if error.ctx else ""
    if near:
        words += f"; did you mean {' or '.join(sorted(near))}?"
    elif words.startswith("missing ") and asked in examples:
        words += f"; for example: {examples[asked]}"
    elif asked and asked not in examples and "did you mean" not in words:
        words += "; holmes-sim --help names what there is"
    return f"error: {words}\n"
