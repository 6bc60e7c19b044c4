"""Mixed-integer linear programmes: the only file that imports PuLP. Builds and solves them, and reports status and bound.

HiGHS solves; CBC is the fallback where HiGHS is not installed. PuLP calls a solution "Optimal" also when a limit stopped
the search, so status and bound are read from the solver itself (HiGHS) or from PuLP's solution status (CBC, which reports no
bound).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pulp

from planner.time_limit import TimeLimit

Expression: TypeAlias = pulp.LpAffineExpression
Variable: TypeAlias = pulp.LpVariable
Constraint: TypeAlias = pulp.LpConstraint


@dataclass(frozen=True, slots=True)
class Solution:
    """The best solution found. proved: it is optimal; bound: no solution is below it (-inf where the solver reports none)."""

    objective: float
    bound: float
    proved: bool
    solver: str


class NothingFound(Exception):
    """A solver's budget ended before it found a first solution."""


class Programme:
    """A minimisation under construction. Variables and constraints have names, so that the programme can be read."""

    def __init__(self, name: str):
        self._problem = pulp.LpProblem(name, pulp.LpMinimize)

    def integer(self, name: str, low: int, up: int) -> Variable:
        """An integer variable from low to up."""
        return self._problem.add_variable(name, low, up, pulp.LpInteger)

    def binary(self, name: str) -> Variable:
        """A variable that is 0 or 1."""
        return self._problem.add_variable(name, 0, 1, pulp.LpInteger)

    def real(self, name: str, low: float = 0.0, up: float = math.inf) -> Variable:
        """A continuous variable between low and up."""
        return self._problem.add_variable(name, low, up if math.isfinite(up) else None)

    def require(self, name: str, constraint: Constraint) -> None:
        """Add a named constraint: `total(...) <= total(...)`."""
        self._problem.addConstraint(constraint, name)

    def minimise(self, expression: Expression) -> None:
        """Set the objective."""
        self._problem.setObjective(expression)

    def solve(self, nodes: int, limit: TimeLimit) -> Solution | None:
        """The best solution found in `nodes` nodes of the branch-and-bound tree, or None where the programme is infeasible.

        The time limit is a safeguard. Raises NothingFound where either ended the search before a first solution was found: then
        nothing is proved."""
        seconds = max(limit.seconds_left, 0.1)
        settings = {"msg": False, "timeLimit": seconds, "threads": 1, "mip_max_nodes": nodes}
        highs = _HiGHS(**settings)
        try:
            if not highs.available():
                return self._cbc(nodes, seconds)
            # presolve of highspy 1.14 to 1.15.1 calls some feasible programmes infeasible (as HiGHS issue 3296): solve without
            return self._highs(highs) or self._highs(_HiGHS(**settings, presolve="off"))
        finally:
            limit.is_up()  # records that the limit, and not the nodes, may have ended the search

    def _highs(self, solver: pulp.HiGHS) -> Solution | None:
        self._problem.solve(solver)
        if not self._found():
            return None
        info, constant = self._problem.solverModel.getInfo(), float(self._problem.objective.constant)
        proved = self._problem.sol_status == pulp.LpSolutionOptimal and info.mip_gap <= 1e-4
        objective, bound = float(info.objective_function_value), float(info.mip_dual_bound)
        return Solution(objective + constant, bound + constant, proved, "HiGHS")

    def _found(self) -> bool:
        if self._problem.sol_status in _FOUND:
            return True
        if self._problem.sol_status == pulp.LpSolutionInfeasible:
            return False
        raise NothingFound

    def _cbc(self, nodes: int, seconds: float) -> Solution | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 announces that 4.0 ships no CBC; we pin below 4
            # without `threads`: "threads 1" starts CBC's threaded search, which now and then waits 10 s for itself
            solver = pulp.PULP_CBC_CMD(msg=False, timeLimit=seconds, maxNodes=nodes)
        self._problem.solve(solver)
        if not self._found():
            return None
        objective = float(pulp.value(self._problem.objective))
        proved = self._problem.sol_status == pulp.LpSolutionOptimal
        return Solution(objective, objective if proved else -math.inf, proved, "CBC")


class _HiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """HiGHS with a limit of nodes, for whose status PuLP 3.3 has no name: its table raises KeyError."""

    def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802 (PuLP's name)
        """PuLP's status of the problem and of its solution; variables have their values when it returns."""
        try:
            status, solution = super().findSolutionValues(lp)
        except KeyError as error:
            if getattr(error.args[0], "name", "") != "kSolutionLimit":
                raise
            if not math.isfinite(lp.solverModel.getInfo().objective_function_value):
                return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound
            return pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible
        return status, solution


_FOUND = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)


def total(terms: Iterable[tuple[Variable, float]], constant: float = 0.0) -> Expression:
    """Sum of coefficient x variable, plus a constant; a variable may occur several times."""
    sums: dict[Variable, float] = {}
    for variable, coefficient in terms:
        sums[variable] = sums.get(variable, 0.0) + coefficient
    return pulp.LpAffineExpression(list(sums.items()), constant)


def count(variable: Variable) -> int:
    """Value of an integer variable in the solution."""
    return round(variable.varValue or 0.0)


def real_value(variable: Variable) -> float:
    """Value of a continuous variable in the solution; 0 where the solver gave it none."""
    return float(variable.varValue or 0.0)
