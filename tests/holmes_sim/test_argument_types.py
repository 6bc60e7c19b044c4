"""Every argument of every public function of `holmes_sim` with a value of a wrong type: one line that says what is expected."""

from __future__ import annotations

import inspect
import threading
from types import FunctionType

import pytest

import holmes_sim as hs
from sim.errors import OptionError

FUNCTIONS = [name for name in hs.__all__ if isinstance(getattr(hs, name), FunctionType)]
ARGUMENTS = [
    (name, parameter)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(hs, name)).parameters.values()
    if parameter.kind != parameter.VAR_KEYWORD
]


@pytest.mark.parametrize(("name", "parameter"), ARGUMENTS, ids=lambda one: getattr(one, "name", one))
def test_a_wrong_type_is_one_line_with_its_function_and_argument(name, parameter):
    wrong = object()
    with pytest.raises(hs.HolmesError) as refused:
        if parameter.kind == parameter.VAR_POSITIONAL:
            getattr(hs, name)(wrong)
        else:
            getattr(hs, name)(**{parameter.name: wrong})
    line = str(refused.value)
    assert line.startswith(f"{name}: {parameter.name}: ")
    assert " is expected, not <object object at 0x" in line
    assert "\n" not in line and len(line) < 260


WHERE = hs.load("lab/lab-slow-trunk")
EVENT, WISHES = "threading.Event() is one", "hs.Wishes(tp=2) is one"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: hs.what_if(WHERE, time_limit="x"), "what_if: time_limit: a number of seconds is expected, not 'x'"),
        (lambda: hs.what_if(WHERE, float("nan")), "what_if: time_limit: a number of seconds is expected, not nan"),
        (lambda: hs.plan(WHERE, time_limit=True), "plan: time_limit: a number of seconds is expected, not True"),
        (lambda: hs.plan(WHERE, explain="yes"), "plan: explain: True or False is expected, not 'yes'"),
        (lambda: hs.plan(WHERE, {"tp": 2}), "plan: workload: a workload is expected, not {'tp': 2}; topology.workload is one"),
        (
            lambda: hs.plan(WHERE, wishes=2),
            "plan: wishes: an object of pinned dimensions is expected, not 2; hs.Wishes(tp=2) is one",
        ),
        (
            lambda: hs.plan(WHERE, cancel=1),
            "plan: cancel: an object with is_set() is expected, not 1; threading.Event() is one",
        ),
        (lambda: hs.plan(WHERE, progress=print, watch=3), "plan: watch: a function is expected, not 3"),
        (lambda: hs.edited(WHERE, ["a"]), "edited: edits: a mapping is expected, not ['a']"),
        (
            lambda: hs.trunk_bandwidths(WHERE, bandwidths="1 Gbit/s"),
            "trunk_bandwidths: bandwidths: a list (a text each) is expected, not '1 Gbit/s'",
        ),
        (
            lambda: hs.trunk_bandwidths(WHERE, bandwidths=[1, 2]),
            "trunk_bandwidths: bandwidths: a list (a text each) is expected, not [1, 2]",
        ),
        (lambda: hs.load(3), "load: name: a text or a path is expected, not 3"),
        (lambda: hs.import_("a", 3), "import_: sources: a text or a path is expected, not 3"),
    ],
)
def test_the_line_says_what_is_right(call, line):
    with pytest.raises(OptionError) as refused:
        call()
    assert str(refused.value) == line


def test_a_long_value_is_shortened():
    with pytest.raises(OptionError) as refused:
        hs.simulate("x" * 1000)
    assert len(str(refused.value)) < 160


def test_right_types_pass_and_missing_arguments_are_as_ever():
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(KeyboardInterrupt):
        hs.plan(WHERE, time_limit=1, cancel=stopped)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'where'"):
        hs.plan()
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        hs.simulate(colour=1)
    with pytest.raises(OptionError, match="plan has no argument 'colour'"):
        hs.plan(WHERE, colour=1)


def test_signatures_and_docstrings_are_those_of_the_functions():
    assert str(inspect.signature(hs.simulate)).startswith("(given: 'Plan')")
    assert hs.simulate.__doc__ == "Simulate one step of a plan."
    assert hs.simulate is hs.simulate
