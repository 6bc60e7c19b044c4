"""Command line of the benchmarks: `python -m benchmarks [NAME ...]` prints tables of measurements.

Without a name the quick benchmarks run, in about two minutes: `engine` (events per second), `scale` (seconds and memory of
simulations) and `evaluator` (candidates per second). The others run by name only:

- `peers`: plans evaluated under the cost models of other planners; four minutes.
- `strategies`: every shipped topology planned by every strategy; a minute or more for each topology.
- `planning [FLEET ...]`: seconds, gap and step of plans on all shipped topologies and on generated fleets of up to 102,400
  devices, beside four other strategies; up to three minutes for each fleet.
- `lab`: links of the lab compared with the model; one minute. Needs torch, and root or user namespaces.
- `scenarios [tp | unlike]`: plans executed in the lab; fourteen minutes. With `tp`, six with tensor-parallel groups inside
  nodes, and with `unlike`, three of unlike stages or replicas; eight minutes each. Same needs.
- `certificates`: certified plans and their bounds checked by brute force; 50 minutes on one core. Options in
  `benchmarks.certificates.run`.
- `residuals`: measured / predicted step of all held-out runs, written to `holmes_sim/residuals.csv`; ten minutes.
- `unseen`: errors on software that no fit has seen, by kind of software; half a minute.
- `ranges`: coverage and width of ranges of the step time, with each source left out; some seconds.
- `hetermoe`: attention and experts on unlike devices over plain expert parallelism, beside HeterMoE's speedups; half a minute.
- `collectives`: collectives between and inside nodes, modelled and measured; some seconds.
- `kernels`: products, layers, exchanges of tokens and sends, modelled and measured; a second.
- `sweep`: errors, rank correlation and regret of the layouts of nanotron's sweep; some seconds.
- `orders`: share of pairs of layouts that the simulator orders as measured; some seconds.
- `shortlist`: regret after measuring the layouts that `plan --shortlist` proposes; four minutes. Options in
  `benchmarks.shortlist`.
- `pins [owned] [FLEETS [PINS]]`: whether random pins give faster plans than the search without them, or plans below its
  bound; some minutes, with `owned`, for fleets of the sizes that users own, half an hour.
- `unlike [FLEETS]`: what a tp of their own for devices with little memory is worth, on drawn fleets; three minutes.
- `alike [TOPOLOGY ...]`: what plans gain that say more than one degree for all stages, on all shipped topologies; half an hour.
- `recompute [FLEETS]`: what it is worth that each stage recomputes as few layers as fit, on drawn fleets; six minutes.
- `layouts [GROUPS]`: published layouts of Mixtral 8x22B, Qwen2-57B-A14B and TeleChat3, simulated, beside the planner's plans;
  eight minutes.
- `intellect`: outer exchanges and MFU of INTELLECT-1, by link rate; some seconds.
- `sync_losses [STEPS [SEEDS]]`: losses of a small GPT under each sync strategy, 2 and 4 islands; four minutes. Needs torch.
- `robust_losses [STEPS [SEEDS]]`: losses of a small GPT with each aggregation of islands, with and without a wrong island;
  eleven minutes. Needs torch.
- `clocks [TOPOLOGY ...]`: whether plans depend on the speed of the machine; twenty minutes.
- `exports [options] [TOPOLOGY ...]`: whether each plan for a target is exported to it, on all shipped topologies; half an hour.
- `parsers --megatron FOLDER ...`: whether targets' own parsers refuse what their exporters refuse, on drawn plans; a minute or
  two for each target. Options in `benchmarks.parsers.law`.
- `microbatches [options] [TOPOLOGY ...]`: what microbatch sizes of their own give stages, on all shipped topologies of up to
  640 devices; half an hour.
- `checkouts OLD NEW`: plans and timelines of two checkouts compared. Options in `benchmarks.checkouts`.
"""

from __future__ import annotations

import os
import sys

from benchmarks import (
    alike_stages,
    checkouts,
    clocks,
    collectives,
    engine,
    evaluator,
    exports,
    hetermoe,
    intellect,
    kernels,
    lab,
    orders,
    pins,
    planning,
    published_layouts,
    ranges,
    recompute,
    residuals,
    robust_losses,
    scale,
    scenarios,
    shortlist,
    stage_microbatches,
    strategies,
    sweep,
    sync_losses,
    unlike,
    unseen,
)
from benchmarks.certificates import run
from benchmarks.parsers import law
from benchmarks.peers import tables
from holmes_sim.commands import shipped_topologies
from planner.strategies import names


def show_engine() -> None:
    """Print events per second of the engine and of raw SimPy."""
    print(f"{'engine':<24}{'events':>10}{'seconds':>10}{'events/s':>12}{'of raw':>8}")
    for row in engine.measure():
        print(f"{row.name:<24}{row.events:>10,}{row.seconds:>10.3f}{row.rate:>12,.0f}{row.share:>8.2f}")


def show_scale() -> None:
    """Print seconds and memory of simulations by number of devices; growth is relative to the smallest size."""
    print(f"{'simulate':<10}{'devices':>9}{'classes':>9}{'seconds':>9}{'growth':>8}{'process':>10}{'memory':>10}{'step':>9}")
    first: dict[str, float] = {}
    for row in scale.measure():
        growth = row.seconds / first.setdefault(row.fleet, row.seconds)
        numbers = f"{row.seconds:>7.2f} s{growth:>8.2f}{row.process_seconds:>8.1f} s{row.peak_bytes / 2**20:>6.0f} MiB"
        print(f"{row.fleet:<10}{row.devices:>9,}{row.classes:>9}{numbers}{row.step_s:>7.2f} s")


def show_evaluator() -> None:
    """Print candidates per second of the evaluator."""
    print(f"{'evaluator, candidates/s':<52}{'recurrence':>12}{'with costs':>12}")
    for name, rates in evaluator.measure().items():
        print(f"{name:<52}{rates['recurrence']:>12,.0f}{rates['all']:>12,.0f}")


def show_strategies() -> None:
    """Print a Markdown table of samples/s of all strategies on all shipped topologies, each row when it is known."""
    columns = names()
    for line in strategies.table(columns, strategies.measure(shipped_topologies(), columns)):
        print(line, flush=True)


def show_lab() -> None:
    """Print seconds of gloo in the lab, modelled and measured."""
    print(f"{'lab, 1/' + format(lab.SCALE, 'g') + ' of the rates':<32}{'modelled':>10}{'measured':>10}{'diff.':>8}")
    for row in lab.measure():
        print(f"{row.name:<32}{row.modelled:>8.3f} s{row.measured:>8.3f} s{row.measured / row.modelled - 1:>8.1%}")


UNASKED = {"engine": show_engine, "scale": show_scale, "evaluator": show_evaluator}
PARTS = UNASKED | {
    "peers": tables.show, "strategies": show_strategies,
    "lab": show_lab, "residuals": residuals.show, "ranges": ranges.show,
    "orders": orders.show, "collectives": collectives.show, "sweep": sweep.show, "intellect": intellect.show,
    "hetermoe": hetermoe.show, "kernels": kernels.show, "unseen": unseen.show,
}  # fmt: skip
WITH_OPTIONS = {
    "alike": alike_stages.show,
    "certificates": run.show,
    "checkouts": checkouts.show,
    "clocks": clocks.show,
    "exports": exports.show,
    "microbatches": stage_microbatches.show,
    "layouts": published_layouts.show,
    "parsers": law.show,
    "planning": planning.show,
    "shortlist": shortlist.show,
    "pins": pins.show,
    "recompute": recompute.show,
    "robust_losses": robust_losses.show,
    "scenarios": scenarios.show,
    "sync_losses": sync_losses.show,
    "unlike": unlike.show,
}


def main(names: list[str]) -> None:
    """Run the named benchmarks, or the quick ones without a name."""
    if names and names[0] in WITH_OPTIONS:
        WITH_OPTIONS[names[0]](names[1:])
        return
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS | WITH_OPTIONS)}")
    for name in names or UNASKED:
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        PARTS[name]()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
