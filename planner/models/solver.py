"""Mixed-integer linear programmes: the only file that imports PuLP. Builds and solves them, and reports status and bound.

HiGHS solves; CBC is the fallback where HiGHS is not installed. PuLP calls a solution "Optimal" also when a time limit stopped
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

    def solve(self, time_limit: float) -> Solution | None:
        """The best solution found within `time_limit` seconds, or None where the programme is infeasible.

        Raises TimeoutError where the time ran out before a first solution was found: then nothing is proved."""
        settings = {"msg": False, "timeLimit": max(time_limit, 0.1), "threads": 1}
        highs = pulp.HiGHS(**settings)
        if not highs.available():
            return self._cbc(time_limit)
        # presolve of highspy 1.14 to 1.15.1 calls some feasible programmes infeasible (as HiGHS issue 3296): solve without
        return self._highs(highs) or self._highs(pulp.HiGHS(**settings, presolve="off"))

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
        raise TimeoutError("no solution found in time")

    def _cbc(self, time_limit: float) -> Solution | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 announces that 4.0 ships no CBC; we pin below 4
            solver = pulp.PULP_CBC_CMD(msg=False, timeLimit=max(time_limit, 0.1), threads=1)
        self._problem.solve(solver)
        if not self._found():
            return None
        objective = float(pulp.value(self._problem.objective))
        proved = self._problem.sol_status == pulp.LpSolutionOptimal
        return Solution(objective, objective if proved else -math.inf, proved, "CBC")


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
