"""powersgd=RANK: each matrix as a product of two thin ones, with error feedback (Vogels et al., arXiv 1905.13727, algorithm 1).

A matrix of m x n is sent as m x r and n x r values, which islands add up one after the other in two all_reduces; vectors, and
matrices that would not become smaller, are sent whole. The experts of a layer are one matrix with the rows of all of them."""

from __future__ import annotations

from collections.abc import Iterator

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
    """The bytes of each value that is sent, r (m + n) of a matrix of m x n; the mean over all parameters, without tensor
    parallelism, which makes matrices smaller."""
    rank, sent, held = rank_of(argument), 0, 0
    for number, rows, columns in _matrices(model):
        sent += number * min(rank * (rows + columns), rows * columns)
        held += number * rows * columns
    return width * (sent + model.parameters - held) / model.parameters


def _matrices(model: Model) -> Iterator[tuple[int, int, int]]:
    """(number, rows, columns) of the matrices of a model. Latent attention is taken as one matrix."""
    hidden = model.hidden
    yield (1 if model.tied_embeddings else 2), model.vocab, hidden
    yield 1, model.learned_positions, hidden
    for number, kind in model.kinds(0, model.layers):
        if kind.attention == "mla":
            yield number, kind.attention_parameters // hidden, hidden
        else:
            yield number, kind.query_size + kind.key_value_size, hidden
            yield number, hidden, kind.value_size
        if kind.experts:
            yield number, kind.experts * kind.up_width, hidden
            yield number, kind.experts * hidden, kind.ffn_hidden
            yield number, kind.experts, hidden
        if width := kind.shared_ffn_hidden if kind.experts else kind.ffn_hidden:
            yield number, width * kind.up_width // kind.ffn_hidden, hidden
            yield number, hidden, width
