"""powersgd=RANK: each matrix as the product of two thin ones, with error feedback (Vogels et al., arXiv 1905.13727).

A matrix of m x n is sent as m x r and n x r values, which islands add up one after the other in two all_reduces; vectors are
sent whole. The matrix of a linear layer is taken as hidden x hidden in size, the mean shape of a transformer's."""

from __future__ import annotations

from sim.compression import EXCHANGES
from sim.errors import OptionError
from sim.workload.model import Model

NAME = "powersgd"
ARGUMENT = "4"
USES = (EXCHANGES,)
SUMMED = True
LOSSY = True
FEEDBACK = True
PASSES = 8.0  # add the feedback: 3; two products and one orthogonalisation read the matrix: 3; write the result and the loss: 2


def rank_of(argument: str) -> int:
    """The rank of the products: a whole number of at least 1. Raises OptionError."""
    if not argument.isdecimal() or int(argument) < 1:
        raise OptionError(f"compression powersgd={argument}: write the rank, such as powersgd={ARGUMENT}")
    return int(argument)


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """r (m + n) / (m n) values of a square matrix of the model's hidden size; at most 1."""
    return width * min(1.0, rank_of(argument) * 2 / model.hidden)
