"""Losses of a small GPT under each sync strategy, beside exact training on the same tokens: the evidence for their prices.

`python -m benchmarks sync_losses [STEPS [SEEDS]]` trains for STEPS inner steps (500) with SEEDS seeds (3). The tokens are drawn
from a Markov chain with a fixed random table, which can be learned. Islands are threads of one process that share the batch of
16 sequences of a step and run the outer loop of the torch backend, with real gloo groups between them. The loss is that of
held-out sequences, the mean of the weights of all islands; that of the predictor that knows the table is printed below. Needs
torch."""

from __future__ import annotations

import math
import os
import statistics
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from sim.sync import Sync
from sim.sync.adaptive_sgd import learning_rates
from sim.workload.model import Model

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from holmes_sim.torch_backend.islands.reducers import Reducer

MODEL = Model("small", layers=1, hidden=32, heads=2, kv_heads=2, ffn_hidden=64, vocab=64, learned_positions=32)
SEQUENCE, BATCH, HELD_OUT = 32, 16, 256
LEARNING_RATE = 1e-2
"""Adam's largest learning rate of inner steps: exact training has a loss of 2.28 with it, and of 2.35 with 3e-3 (seed 0)."""
WARM_UP = 50
"""Inner steps over which the learning rate grows to its value."""
TABLE_SEED = 0
"""All seeds have the same table: they draw other weights and other tokens."""
WRONG = -10.0
"""Factor of what a wrong island sends: away from the loss, and far."""
ISLANDS = (2, 4)
STRATEGIES: tuple[tuple[str, Sync], ...] = (
    ("exact", Sync("every-step")),
    ("bf16", Sync("every-step", compression="bf16")),
    ("int8", Sync("every-step", compression="int8")),
    ("int4", Sync("every-step", compression="int4")),
    ("top-k 1 %", Sync("every-step", compression="top-k=1%")),
    ("powersgd 4", Sync("every-step", compression="powersgd=4")),
    ("local-sgd 10", Sync("local-sgd", inner_steps=10)),
    ("adaptive-sgd 10, unlike batches", Sync("adaptive-sgd", inner_steps=10)),
    ("diloco 10", Sync("diloco", inner_steps=10)),
    ("diloco 10, int8", Sync("diloco", inner_steps=10, compression="int8")),
    ("diloco 50", Sync("diloco", inner_steps=50)),
    ("streaming-diloco 10, 2 fragments, 2 beside", Sync("streaming-diloco", inner_steps=10, overlap_steps=2, fragments=2)),
    ("co2 10", Sync("co2", inner_steps=10)),
    ("independent", Sync("independent")),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Held-out losses of a strategy, one for each seed, and of the best predictor."""

    name: str
    islands: int
    losses: tuple[float, ...]
    least: float


class Chain:
    """A Markov chain of tokens with a fixed random table of transitions, of unlike entropy from token to token."""

    def __init__(self, seed: int):
        import torch

        stream = torch.Generator().manual_seed(seed)
        logits = torch.randn(MODEL.vocab, MODEL.vocab, generator=stream) * torch.linspace(1, 4, MODEL.vocab).unsqueeze(1)
        self.table = logits.softmax(-1)

    def draw(self, sequences: int, seed: int) -> torch.Tensor:
        """Tokens (SEQUENCE + 1, sequences)."""
        import torch

        stream = torch.Generator().manual_seed(seed)
        rows = [torch.randint(MODEL.vocab, (sequences,), generator=stream)]
        for _ in range(SEQUENCE):
            rows.append(torch.multinomial(self.table[rows[-1]], 1, generator=stream).squeeze(1))
        return torch.stack(rows)

    def least(self, tokens: torch.Tensor) -> float:
        """Loss of the predictor that knows the table."""
        return -float(self.table[tokens[:-1], tokens[1:]].log().mean())


class Island:
    """A copy of the model, Adam, and the values that the outer loop exchanges."""

    def __init__(self, seed: int, batch: int, rate: float):
        import torch

        from holmes_sim.torch_backend.blocks import Embedding, Head, Layer
        from holmes_sim.torch_backend.buckets import BETAS
        from holmes_sim.torch_backend.islands.links import Cell
        from holmes_sim.torch_backend.tensor_parallel import TensorParallel

        parallel = TensorParallel()
        self.blocks = [Embedding(MODEL, parallel, seed)]
        self.blocks += [Layer(MODEL, parallel, seed, index, "none") for index in range(MODEL.layers)]
        self.head = Head(MODEL, parallel, seed, batch * SEQUENCE)
        self.head.words = self.blocks[0].words
        named = {id(w): (name, w) for block in (*self.blocks, self.head) for name, w in block.named()}
        self.parameters = [weight for _, weight in named.values()]
        self.cells = [Cell(name, 0, weight.numel(), tuple(weight.shape)) for name, weight in named.values()]
        self.adam, self.rate = torch.optim.Adam(self.parameters, lr=rate, betas=BETAS, fused=True), rate

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of tokens (SEQUENCE + 1, batch), relative to the batch of a step."""
        x = tokens[:-1]
        for block in self.blocks:
            x = block(x)
        return self.head(x, tokens[1:])  # type: ignore[no-any-return]

    def held_out(self, tokens: torch.Tensor) -> float:
        """Loss of held-out tokens."""
        import torch

        with torch.no_grad():
            return float(self.loss(tokens)) * self.head.tokens / tokens[1:].numel()

    def weights(self) -> torch.Tensor:
        """All weights."""
        import torch

        return torch.cat([weight.detach().flatten() for weight in self.parameters])

    def set_weights(self, values: torch.Tensor) -> None:
        """Replace all weights."""
        for weight, part in zip(self.parameters, values.split([w.numel() for w in self.parameters]), strict=True):
            weight.data.copy_(part.view(weight.shape))

    def gradients(self) -> torch.Tensor:
        """The gradients of the step."""
        import torch

        return torch.cat([weight.grad.flatten() for weight in self.parameters if weight.grad is not None])

    def set_gradients(self, values: torch.Tensor) -> None:
        """Replace the gradients."""
        for weight, part in zip(self.parameters, values.split([w.numel() for w in self.parameters]), strict=True):
            weight.grad = part.view(weight.shape).clone()


def batches(sync: Sync, islands: int, batch: int = BATCH) -> tuple[int, ...]:
    """Sequences of each island: equal, but with adaptive SGD the first has more."""
    each = batch // islands
    return (
        (each + each // 2, each - each // 2, *(each,) * (islands - 2)) if sync.strategy == "adaptive-sgd" else (each,) * islands
    )


def schedule(step: int, steps: int) -> float:
    """Factor on the learning rate: it grows linearly, then falls as a cosine to a tenth."""
    return min((step + 1) / WARM_UP, 0.55 + 0.45 * math.cos(math.pi * step / steps))


class Wrong:
    """The reducer of an island that sends `WRONG` times its values: of one that is broken, or hostile (Byzantine)."""

    def __init__(self, reducer: Reducer):
        self.reducer = reducer

    def reduce(self, values: list[torch.Tensor], fragment: int) -> list[torch.Tensor]:
        """The result of all islands, of which this one sends wrong values."""
        return self.reducer.reduce([WRONG * one for one in values], fragment)


def train(sync: Sync, islands: int, steps: int, seed: int, batch: int = BATCH, has_wrong: bool = False) -> tuple[float, float]:
    """(held-out loss, the least one) after so many inner steps. `has_wrong`: one island, drawn by the seed, is wrong, and the
    loss is that of the others."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    chain, store, found, sizes = Chain(TABLE_SEED), dist.HashStore(), dict[int, float](), batches(sync, islands, batch)
    drawn = chain.draw(batch * steps, seed).t().reshape(steps, batch, SEQUENCE + 1)
    wrong = Random(seed).randrange(islands) if has_wrong else -1
    held_out = chain.draw(HELD_OUT, 1_000_000 + seed)

    def run(number: int) -> None:
        group = dist.ProcessGroupGloo(dist.PrefixStore("islands", store), number, islands, timedelta(seconds=300))
        island = _island(sync, group, sizes, drawn, seed, number == wrong)  # type: ignore[arg-type]
        found[number] = island.held_out(held_out)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(islands)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.mean(found[number] for number in range(islands) if number != wrong), chain.least(held_out)


def _island(
    sync: Sync, group: dist.ProcessGroup, sizes: tuple[int, ...], drawn: torch.Tensor, seed: int, is_wrong: bool
) -> Island:
    """An island after its training on `drawn` tokens (step, sequence, token)."""
    from holmes_sim.torch_backend.islands.links import links_of
    from holmes_sim.torch_backend.islands.outer_loop import OuterLoop
    from holmes_sim.torch_backend.islands.training import reducer_of

    number = group.rank()
    factor = learning_rates(sizes)[number] if sync.strategy == "adaptive-sgd" else 1.0
    island = Island(seed, sizes[number], LEARNING_RATE * factor)
    links = links_of([[island.cells]] * len(sizes), number, 0) if sync.exchanges else []
    reducer = reducer_of(sync, links, [group] * len(links), sizes[number] / sum(sizes))
    loop = OuterLoop(sync, island, links, Wrong(reducer) if is_wrong else reducer)
    first = sum(sizes[:number])
    for step in range(drawn.shape[0]):
        tokens = drawn[step, first : first + sizes[number]].t()
        island.loss(tokens).backward()
        loop.before_optimizer()
        for some in island.adam.param_groups:
            some["lr"] = island.rate * schedule(step, drawn.shape[0])
        island.adam.step()
        island.adam.zero_grad()
        loop.after_step()
    loop.close()
    return island


def measure(steps: int = 500, seeds: int = 3) -> Iterator[Row]:
    """Rows of all strategies, for 2 and 4 islands, each when it is known."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        cases = [(name, sync, islands) for islands in ISLANDS for name, sync in STRATEGIES]
        jobs = [[pool.submit(train, sync, islands, steps, seed) for seed in range(seeds)] for _, sync, islands in cases]
        for (name, _, islands), some in zip(cases, jobs, strict=True):
            losses, least = zip(*(job.result() for job in some), strict=True)
            yield Row(name, islands, losses, statistics.mean(least))


def show(arguments: list[str]) -> None:
    """Print the losses as a Markdown table, each row when it is known. Arguments: STEPS and SEEDS."""
    numbers = [int(text) for text in arguments]
    print("| islands | strategy | loss | spread | above exact |")
    print("| --- | --- | --- | --- | --- |")
    exact, least = {}, 0.0
    for row in measure(*numbers):
        exact[row.islands] = exact.get(row.islands, row.losses)
        above = statistics.mean(a - b for a, b in zip(row.losses, exact[row.islands], strict=True))
        mean, spread, least = statistics.mean(row.losses), max(row.losses) - min(row.losses), row.least
        print(f"| {row.islands} | {row.name} | {mean:.3f} | {spread:.3f} | {above:+.3f} |", flush=True)
    print(f"\nThe predictor that knows the table has a loss of {least:.3f}.")
