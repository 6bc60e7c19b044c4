"""The functions of the package, whose modules are imported when one of them is first used."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

from holmes_sim import printing


def test_every_name_is_a_function_whichever_module_is_imported_first():
    for module in pkgutil.iter_modules(printing.__path__):
        importlib.import_module(f"holmes_sim.printing.{module.name}")
    assert [name for name in printing.__all__ if not callable(getattr(printing, name))] == []


def test_a_plan_is_printed_without_the_modules_of_other_commands():
    program = "import sys; from holmes_sim import printing; printing.planned; print('holmes_sim.sweeping.study' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
