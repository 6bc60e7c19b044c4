"""The package: its own neighbours, its public names, and an import that costs little."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pkgutil import iter_modules

import pytest

import holmes_sim as hs

HOME = Path(hs.__file__).resolve().parent.parent


def python(script: str, *first: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter with folders first on its path."""
    path = os.pathsep.join(map(str, (*first, HOME)))
    return subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
        cwd=first[0] if first else HOME,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["sim", "planner"])
def test_a_foreign_neighbour_is_named(tmp_path, name):
    """Somebody's own folder `sim` stands first on the path: an ImportError that says which and where, before anything else."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package was imported')\n")
    done = python("import holmes_sim", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: holmes_sim needs its own package {name!r} at {HOME / name}, but found {tmp_path / name} first; "
        "rename or move the other one"
    )


def test_a_foreign_module_is_named_as_well(tmp_path):
    (tmp_path / "sim.py").write_text("")
    done = python("import holmes_sim", tmp_path)
    assert done.returncode == 1
    assert "ImportError: holmes_sim needs its own package 'sim'" in done.stderr
    assert str(tmp_path) in done.stderr


def test_a_folder_without_init_does_not_hide_ours(tmp_path):
    """A namespace folder stands behind a real package, so it harms nothing."""
    (tmp_path / "sim").mkdir()
    assert python("import holmes_sim; holmes_sim.load", tmp_path).returncode == 0


def test_public_names_are_there():
    assert {"load", "plan", "simulate", "read_plan", "Wishes", "Plan", "Infeasible"} <= set(hs.__all__)
    for name in hs.__all__:
        assert getattr(hs, name) is not None
        assert name in dir(hs)
    assert hs.__version__


def test_a_public_function_bears_the_name_of_no_module():
    """An imported module becomes an attribute of its package, and would take the function's place: `hs.report`, say."""
    modules = {module.name for module in iter_modules(hs.__path__)}
    assert {name for name in hs.__all__ if name in modules} == {"charts", "validation"}
    script = "import holmes_sim as hs; {first}; import holmes_sim.reporting; print(hs.report.__name__)"
    for first in ("hs.report", "pass"):
        assert python(script.format(first=first)).stdout == "report\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = hs.nonsense
    done = python("from holmes_sim import nonsense")
    assert "ImportError: cannot import name 'nonsense'" in done.stderr


def test_a_notebook_needs_three_lines():
    topology = hs.load("holmes-hybrid-4")
    answer = hs.plan(topology, wishes=hs.Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none"))
    assert hs.simulate(answer.plan).prediction == answer.plan.prediction


@pytest.mark.parametrize("module", ["holmes_sim", "holmes_sim.cli"])
def test_importing_the_command_line_is_light(module):
    """Heavy libraries come in when they are used, so that --help answers at once."""
    script = (
        f"import sys, {module}\n"
        "heavy = ['pandas', 'matplotlib', 'pulp', 'highspy', 'networkx', 'simpy', 'numpy', 'pydantic']\n"
        "print(sorted(name for name in heavy if name in sys.modules))"
    )
    assert python(script).stdout == "[]\n"


def test_help_and_version_are_light_too():
    script = (
        "import sys\nfrom holmes_sim import cli\nsys.argv = ['holmes-sim', {flag!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = ['pandas', 'matplotlib', 'pulp', 'networkx', 'simpy']\n"
        "print(sorted(name for name in heavy if name in sys.modules))"
    )
    for flag in ("--help", "--version"):
        assert python(script.format(flag=flag)).stdout.splitlines()[-1] == "[]"


def test_the_end_of_a_command_looks_for_no_cycles():
    """The last collection of Python takes seconds after a long search, in which the terminal gives no prompt."""
    script = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000))\n"  # runs after those that the command registers
        "from holmes_sim import cli\nsys.argv = ['holmes-sim', '--version']\ncli.main()"
    )
    assert python(script).stdout.splitlines()[-1] == "True"


def test_results_pickle_and_a_thread_plans():
    """So that a process pool or a thread of an application can plan and hand on what it found."""
    topology, pins = hs.load("lab/lab-slow-dp"), {"tp": 1, "pp": 2, "dp": 2, "microbatch_size": 4, "schedule": "1f1b"}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(hs.plan, topology, **pins).result()
    run = hs.simulate(answer.plan)
    for found in (topology, answer, run, hs.explain(run), hs.compare(topology, names=("megatron",), **pins)):
        assert repr(pickle.loads(pickle.dumps(found))) == repr(found)
