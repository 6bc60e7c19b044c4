"""The command line: arguments in, tables or JSON out; exit codes 0 done, 2 the input is wrong, 3 no plan is feasible.

`commands/` has a file for each command. Heavy imports stand inside the functions, so that --help answers at once.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

YOUNG = 200_000
"""Objects made before Python looks for cycles among them: a command makes many that live to its end, and hardly a cycle."""


def application() -> typer.Typer:
    """The command line with all its commands."""
    from holmes_sim.cli import commands

    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
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
        application()()
    except HolmesError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
