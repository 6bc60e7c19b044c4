"""What the command line shows: tables of plans, reports, topologies and catalogue entries, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import mean

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from holmes_sim import validation
from holmes_sim.calibration import Calibration
from holmes_sim.commands import Planned, Simulated
from holmes_sim.validation import Row as Validated
from planner.search import Row
from sim import catalog, memory, profile
from sim.cases import Case
from sim.explain import KINDS, Account, Explanation, Layer
from sim.plan import Certificate, Plan, Prediction
from sim.report import PlaceReport
from sim.stack import DEFAULT, NUMBERS, Stack
from sim.topology import Topology
from sim.units import GIBI, GIGA, MICRO, MILLI, Seconds, bytes_per_second_text, flops_text, rate_text, size_text, time_text

STYLE = "bold"
SHOWN_PASSAGES = 24
"""Passages of a critical path that are printed; of longer ones the begin and the end."""


def console(stderr: bool = False) -> Console:
    """A console on stdout or stderr; plain text where it is not a terminal."""
    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def planned(answer: Planned) -> Group:
    """A plan as an engineer reads it: layout, stages, groups, prediction, comparison, certificate."""
    plan = answer.plan
    parts: list[Text | Table] = [heading(plan), Text(layout(plan)), Text()]
    parts += [stages(plan, answer.places), Text(), groups(plan), Text(), prediction(_promised(plan)), Text()]
    if answer.baselines:
        parts += [comparison(plan, answer.baselines), Text()]
    if plan.certificate is not None:
        parts.append(Text(certificate(plan, plan.certificate)))
    return Group(*parts)


def simulated(run: Simulated) -> Group:
    """A simulated step: stages and numbers."""
    parts: list[Text | Table] = [heading(run.plan), Text(layout(run.plan)), Text(), stages(run.plan, run.places), Text()]
    return Group(*parts, prediction(run.prediction))


def explained(found: Explanation) -> Group:
    """Where the seconds of a step go, stage by stage, and the chain of events that sets it."""
    busiest: dict[int, Account] = {}
    for account in found.ranks:
        kept = busiest.get(account.place)
        if kept is None or _computes(account) > _computes(kept):
            busiest[account.place] = account
    mean = Account(-1, -1, 0, found.mean)
    on_path = Account(-1, -1, 0, tuple((kind, sum(a.of(kind) for a in found.path)) for kind in _kinds(found.path)))
    step = time_text(float(f"{found.step_s:.4g}"))
    return Group(
        Text(),
        _accounts(f"Where a rank's {step} go", tuple(busiest.values()), mean, "mean", found.step_s),
        Text("tp, pp, dp: communication that no compute hides. bubble: waiting for others."),
        Text(),
        _accounts(f"Critical path of {step}", found.path, on_path, "all", found.step_s),
        Text(_longest(found)),
        Text(),
        _passages(found),
        *(part for layer in found.layers for part in (Text(), _kernels(layer))),
    )


def _computes(account: Account) -> Seconds:
    return sum(account.of(kind) for kind in ("forward", "backward", "recompute", "optimizer"))


def _kinds(accounts: Iterable[Account]) -> tuple[str, ...]:
    """Kinds of seconds that any of the accounts has, in their usual order."""
    found = dict.fromkeys(kind for account in accounts for kind, _ in account.seconds)
    return (*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS))


def _accounts(title: str, rows: tuple[Account, ...], total: Account, name: str, step: Seconds) -> Table:
    """A row for each stage, one for them together, one with its shares of the step; in one unit, so that they add up."""
    kinds = _kinds((*rows, total))
    table = _table(f"{title} (in {'s' if step >= 1 else 'ms'})", "stage", *kinds)

    def cells(account: Account) -> list[str]:
        return [_alike(account.of(kind), step) if account.of(kind) else "-" for kind in kinds]

    for row in rows:
        table.add_row(str(row.place), *cells(row))
    if len(rows) > 1:
        table.add_row(name, *cells(total), style=STYLE)
    table.add_row("share", *(f"{total.of(kind) / step:.1%}" for kind in kinds))
    return table


def _alike(value: Seconds, step: Seconds) -> str:
    """Seconds in the unit that all times of a step are told in, without it."""
    return f"{value:.3f}" if step >= 1 else f"{value / MILLI:.2f}"


def _longest(found: Explanation) -> str:
    """One line: the three longest parts of the critical path, and what it means."""
    parts = sorted(((s, a.place, kind) for a in found.path for kind, s in a.seconds), reverse=True)[:3]
    told = ", ".join(f"stage {place} {kind} {s / found.step_s:.0%}" for s, place, kind in parts if s >= 0.01 * found.step_s)
    return f"Most of it: {told}. A second saved elsewhere saves nothing."


def _kernels(layer: Layer) -> Group:
    """One layer kernel by kernel: seconds, share of the direction, and what binds."""
    title = f"One layer and microbatch on {layer.device} (in us)"
    table = _table(title, "name", "forward", "share", "bound by", "backward", "share", "bound by")
    table.columns[0].header = "kernel"
    totals = [sum(k.forward for k in layer.kernels), sum(k.backward for k in layer.kernels)]
    for kernel in layer.kernels:
        row = [kernel.name]
        for seconds, total, limit in (
            (kernel.forward, totals[0], kernel.forward_limit),
            (kernel.backward, totals[1], kernel.backward_limit),
        ):
            row += [f"{seconds / MICRO:.1f}", f"{seconds / total:.1%}", limit] if seconds else ["-", "-", ""]
        table.add_row(*row)
    table.add_row("all", f"{totals[0] / MICRO:.1f}", "", "", f"{totals[1] / MICRO:.1f}", "", "", style=STYLE)
    counted = f"{layer.forward / MICRO:.1f} and {layer.backward / MICRO:.1f}"
    waits = layer.forward > totals[0] * (1 + 1e-9) or layer.backward > totals[1] * (1 + 1e-9)
    note = f"With the host, which launches more slowly than this: {counted}." if waits else ""
    if layer.measured:
        note = f"The profile's {counted} count in place of these formulas, tensor-parallel collectives included."
    return Group(table, *([Text(note)] if note else []))


def _passages(found: Explanation) -> Table:
    step = found.step_s
    table = _table(f"Critical path in order (in {'s' if step >= 1 else 'ms'})", "from", "takes", "layout")
    table.columns[2].header = "what"
    rows = [(_alike(p.start, step), _alike(p.seconds, step), p.text) for p in found.chain]
    if len(rows) > SHOWN_PASSAGES:
        half = SHOWN_PASSAGES // 2
        left_out = len(rows) - 2 * half
        rows = [*rows[:half], ("...", "...", f"{left_out} more; --json has them all"), *rows[-half:]]
    for row in rows:
        table.add_row(*row)
    return table


def effort(run: Simulated) -> str:
    """What a simulation took, in a line."""
    world, kinds = run.plan.config.world_size, "1 class" if run.classes == 1 else f"{run.classes} classes"
    return f"Simulated {world} ranks in {kinds}, {run.timeline.events} events, in {time_text(run.seconds)}."


def _promised(plan: Plan) -> Prediction:
    assert plan.prediction is not None
    return plan.prediction


def heading(plan: Plan) -> Text:
    """One line: topology, model, batch, devices."""
    workload = plan.workload
    size = workload.model.parameters / GIGA
    return Text(
        f"{plan.topology.name}: {workload.model.name} ({size:.3g} B parameters), batch {workload.global_batch_size} x "
        f"{workload.seq_len} tokens {workload.precision}, {plan.config.world_size} of {plan.fleet.devices} devices",
        style=STYLE,
    )


def layout(plan: Plan) -> str:
    """One line: degrees, microbatches, schedule, switches."""
    config = plan.config
    counts = sorted(set(config.num_microbatches))
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    parts = [f"tp {config.tp}", f"pp {config.pp}", f"dp {config.dp}"]
    parts += [f"{key} {getattr(config, key)}" for key in ("cp", "ep", "vpp") if getattr(config, key) > 1]
    parts += [f"{many} microbatches of {config.microbatch_size}", config.schedule, f"ZeRO {config.zero_stage}"]
    parts += [f"recompute {config.recompute}"] + (["sequence parallel"] if config.sequence_parallel else [])
    return " | ".join(parts) + f"   (strategy {plan.made_by.strategy})"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style=STYLE, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        left = column in {
            "cluster",
            "device",
            "nodes",
            "group",
            "NIC",
            "transport",
            "collective",
            "strategy",
            "layout",
            "name",
            "NICs",
            "interconnect",
        }
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "layout")
    return table


def stages(plan: Plan, rows: Iterable[PlaceReport]) -> Table:
    """A row for each pipeline place: where it stands, its memory and share of the limit, where its time goes."""
    table = _table("Stages", "stage", "cluster", "nodes", "device", "layers", "memory", "limit", "compute", "exposed", "bubble")
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    for row in rows:
        devices = [plan.placement[rank] for rank in range(plan.config.world_size) if plan.config.place(rank)[2] == row.place]
        clusters = list(dict.fromkeys(device.cluster for device in devices))
        specs = list(dict.fromkeys(plan.fleet.spec(device).name for device in devices))
        nodes = sorted({device.node for device in devices})
        layers = "+".join(str(plan.stages[stage].layers) for stage in plan.stages_of(row.place))
        where = f"{nodes[0]}-{nodes[-1]}" if len(nodes) > 1 else str(nodes[0])
        share = f"{peaks[row.place] / limits[row.place]:.0%}"
        times = tuple(time_text(float(f"{seconds:.3g}")) for seconds in (row.compute, row.exposed, row.bubble))
        size = f"{peaks[row.place] / GIBI:.3g} GiB"
        look = (" + ".join(clusters), where, " + ".join(specs), layers, size, share, *times)
        table.add_row(str(row.place), *look)
    return table


def groups(plan: Plan) -> Table:
    """Groups by kind, NIC and clusters, with how many alike there are."""
    table = _table("Groups", "group", "count", "ranks", "NIC", "transport", "collective", "cluster")
    alike: dict[tuple[str, str, str, str, str, str], int] = {}
    for group in plan.groups:
        clusters = dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks)
        collective = "send / recv" if group.kind == "pp" else group.collective
        row = (group.kind, str(len(group.ranks)), group.nic, group.transport, collective, " + ".join(clusters))
        alike[row] = alike.get(row, 0) + 1
    for row, many in alike.items():
        table.add_row(row[0], str(many), *row[1:])
    return table


def prediction(numbers: Prediction) -> Table:
    """The promised numbers."""
    table = _table("Prediction (simulated)", "name", "value")
    table.show_header = False
    for name, value in (
        ("step", time_text(numbers.step_s)),
        ("samples/s", f"{numbers.samples_per_s:.4g}"),
        ("tokens/s", f"{numbers.tokens_per_s:,.0f}"),
        ("TFLOP/s per device", f"{numbers.tflops_per_device:.4g}"),
        ("MFU", f"{numbers.mfu:.1%}"),
        ("bubble", f"{numbers.bubble_fraction:.1%} of the step"),
        ("exposed communication", f"{time_text(float(f'{numbers.exposed_communication_s:.3g}'))} per rank and step"),
        ("of the upper bound", f"{numbers.upper_bound_fraction:.1%}"),
    ):
        table.add_row(name, value)
    return table


def comparison(plan: Plan, rows: Iterable[Row]) -> Table:
    """The plan beside other strategies."""
    table = _table("Against", "strategy", "step", "samples/s", "slower by", "layout")
    best = _promised(plan)
    table.add_row(plan.made_by.strategy, time_text(best.step_s), f"{best.samples_per_s:.4g}", "", short_layout(plan))
    for row in rows:
        if row.plan is None:
            table.add_row(row.name, "-", "-", "-", row.reason)
            continue
        other = _promised(row.plan)
        slower = f"{other.step_s / best.step_s - 1:.1%}"
        table.add_row(row.name, time_text(other.step_s), f"{other.samples_per_s:.4g}", slower, short_layout(row.plan))
    return table


def short_layout(plan: Plan) -> str:
    """Degrees and layers by cluster: `tp 2, pp 2, dp 8, mb 4: ib 16, roce 14`."""
    config = plan.config
    runs: list[tuple[str, list[int]]] = []
    for place in range(config.pp):
        members = range(config.rank(0, 0, place), config.rank(0, 0, place) + config.tp * config.dp_cp)
        clusters = " + ".join(dict.fromkeys(plan.placement[rank].cluster for rank in members))
        layers = sum(plan.stages[stage].layers for stage in plan.stages_of(place))
        if runs and runs[-1][0] == clusters:
            runs[-1][1].append(layers)
        else:
            runs.append((clusters, [layers]))
    where = ", ".join(f"{name} {_runs(layers)}" for name, layers in runs)
    full = "" if config.recompute == "none" else f", recompute {config.recompute}"
    more = "".join(f", {key} {getattr(config, key)}" for key in ("cp", "ep") if getattr(config, key) > 1)
    return f"tp {config.tp}, pp {config.pp}, dp {config.dp}{more}, mb {config.microbatch_size}{full}: {where}"


def _runs(layers: list[int]) -> str:
    """`26|27x3|26`: equal neighbours counted."""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return "|".join(f"{count}x{many}" if many > 1 else str(count) for count, many in runs)


def certificate(plan: Plan, found: Certificate) -> str:
    """The certificate in two sentences: how far from the best, and of what."""
    config = plan.config
    kind = f"{config.schedule} plan" + (f" of vpp {config.vpp}" if config.vpp > 1 else "")
    bound = f"no {kind} with whole stages per cluster is faster than {time_text(found.lower_bound_s)} ({found.solver})"
    far = "optimal" if found.status == "optimal" else f"at most {found.gap:.1%} from the best"
    hint = "" if config.vpp > 1 else " Interleaved stages are tried where --vpp asks for them."
    return f"Certificate: {far}; {bound}.{hint}"


def topology(shown: Topology) -> Group:
    """A fleet in words: clusters, links, workload."""
    clusters = _table("Clusters", "cluster", "nodes", "device", "each", "memory", "interconnect", "NICs")
    for cluster in shown.fleet.clusters:
        nics = "\n".join(f"{nic.count} x {rate_text(nic.bandwidth)} {nic.kind}" for nic in cluster.node.nics) or "-"
        clusters.add_row(
            cluster.name, str(cluster.nodes), cluster.node.device.name, str(cluster.node.count),
            size_text(cluster.node.device.memory), cluster.node.intra_node.name, nics,
        )  # fmt: skip
    parts: list[Text | Table] = [Text(f"{shown.name}: {shown.fleet.devices} devices", style=STYLE)]
    parts += [Text(shown.source)] if shown.source else []
    parts += [Text(), clusters]
    if shown.fleet.trunks:
        links = _table("Links between clusters", "cluster", "NIC", "rate", "latency")
        for trunk in shown.fleet.trunks:
            links.add_row(" - ".join(trunk.between), trunk.kind, rate_text(trunk.bandwidth), time_text(trunk.latency))
        parts += [Text(), links]
    if shown.workload is not None:
        w = shown.workload
        parts += [Text(), Text(f"Workload: {w.model.name}, batch {w.global_batch_size} x {w.seq_len} tokens, {w.precision}")]
    return Group(*parts)


def catalogue(kind: str) -> Table:
    """Entries of a folder of the catalogue with their main facts."""
    if kind == "devices":
        table = _table("Devices", "name", "fp16 or bf16", "memory", "bandwidth", "GEMM curve")
        for name in catalog.names(kind):
            spec, facts = catalog.device(name), catalog.device_facts(name)
            peaks = dict(spec.peak)
            peak = flops_text(peaks.get("bf16") or peaks["fp16"])
            curve = "guess" if facts.sources.get("gemm", "").startswith("guess") else "measured"
            table.add_row(name, peak, size_text(spec.memory), bytes_per_second_text(spec.memory_bandwidth), curve)
        return table
    if kind == "models":
        table = _table("Models", "name", "parameters", "layers", "hidden", "heads", "vocabulary")
        for name in catalog.names(kind):
            model = catalog.model(name)
            size = f"{model.parameters / GIGA:.4g} B"
            table.add_row(name, size, str(model.layers), str(model.hidden), str(model.heads), str(model.vocab))
        return table
    if kind == "stacks":
        table = _stack_table()
        for name in catalog.names(kind):
            known = catalog.stack_facts(name)
            errors = (known.error.default, known.error.fitted, known.error.held_out)
            fitted = tuple(known.fitted.model_fields_set)
            _add_stack(table, name, known.fitted.stack(), fitted, len(known.cases), len(known.held_out), errors)
        return table
    if kind == "profiles":
        table = _table("Profiles", "name", "rows", "precision", "models", "devices")
        for name in catalog.names(kind):
            measured = profile.load(name)
            rows, devices = str(len(measured.layer_profiles)), ", ".join(measured.devices.values())
            table.add_row(name, rows, str(measured.precision), ", ".join(measured.models), devices)
        return table
    table = _table("Interconnects" if kind == "links" else "NIC types", "name", "rate", "all_reduce", "send_recv", "latency")
    for name in catalog.names(kind):
        link = catalog.link(name) if kind == "links" else catalog.nic(name)
        rate = bytes_per_second_text(link.bandwidth) if kind == "links" else "in topology"
        share = [f"{link.efficiency_of(operation):.0%}" for operation in ("all_reduce", "send_recv")]
        table.add_row(name, rate, *share, time_text(link.latency))
    return table


def topologies(shown: Iterable[Topology]) -> Table:
    """Shipped topologies: how many devices in which clusters, and what is trained on them."""
    table = _table("Topologies", "name", "devices", "cluster", "device", "layout")
    table.columns[2].header, table.columns[4].header = "nodes x devices", "workload"
    for one in shown:
        clusters = ", ".join(f"{c.name} {c.nodes} x {c.node.count}" for c in one.fleet.clusters)
        kinds = "\n".join(dict.fromkeys(c.node.device.name for c in one.fleet.clusters))
        workload = f"{one.workload.model.name}, batch {one.workload.global_batch_size}" if one.workload else "-"
        table.add_row(one.name, str(one.fleet.devices), clusters, kinds, workload)
    return table


def modules(title: str, names: Iterable[tuple[str, str]]) -> Table:
    """What a folder of modules offers: name, and what it is in a line."""
    table = _table(title, "name", "layout")
    table.columns[1].header = ""
    for name, line in names:
        table.add_row(name, line)
    return table


def _memory(sizes: tuple[tuple[Case, float, float], ...]) -> Table:
    """Errors of the peak memory by source."""
    table = _table("Peak memory", "name", "cases", "mean error", "bias", "worst")
    table.columns[0].header = "source"
    for source in dict.fromkeys(case.source for case, _, _ in sizes):
        errors = [error for case, _, error in sizes if case.source == source]
        worst = max(errors, key=abs)
        table.add_row(source, str(len(errors)), f"{mean(map(abs, errors)):.1%}", f"{mean(errors):+.1%}", f"{worst:+.1%}")
    return table


def _stack_table() -> Table:
    table = _table("Software stacks", "name", "cases", "groups", *NUMBERS, "default", "fitted", "honest")
    table.columns[0].header = "stack"
    return table


def _add_stack(
    table: Table, name: str, stack: Stack, fitted: Iterable[str], cases: int, groups: int, errors: tuple[float, float, float]
) -> None:
    """A row: the numbers that were fitted, and mean absolute errors with the default, fitted, and on groups left out."""
    shown = {number: f"{getattr(stack, number):.2f}" for number in NUMBERS[:4]}
    shown |= {number: time_text(getattr(stack, number)) for number in NUMBERS[4:]}
    numbers = [shown[number] if number in fitted else "" for number in NUMBERS]
    table.add_row(name, str(cases), str(groups or ""), *numbers, *(f"{error:.1%}" for error in errors))


def calibrated(fitted: Calibration) -> Group:
    """The numbers of every fitted stack, and its error before, after, and on groups of cases that the fit did not see."""
    table = _stack_table()
    for fit in fitted.fits:
        errors = (fit.default_error, fit.error, fit.honest_error)
        _add_stack(table, fit.name, fit.stack, fit.numbers, len(fit.cases), len(fit.held_out), errors)
    shares = ", ".join(f"{name} {getattr(DEFAULT, name):.2f}" for name in NUMBERS[:4])
    times = ", ".join(f"{name} {time_text(getattr(DEFAULT, name))}" for name in NUMBERS[4:])
    note = "Errors are mean absolute ones of the step time; honest: each group of cases predicted by a fit without it."
    lines = [f"Empty: as the default, {shares}, {times}.", note]
    if (common := fitted.common) is not None:
        shares = ", ".join(f"{name} {getattr(common.stack, name):.2f}" for name in NUMBERS[:4])
        times = ", ".join(f"{name} {time_text(getattr(common.stack, name))}" for name in NUMBERS[4:])
        lines.append(f"One set for all, sources of equal weight: {shares}, {times}.")
        lines.append(
            f"Mean over sources: default {common.default_error:.1%}, this set {common.error:.1%}, "
            f"each source by a set fitted to the others {common.left_out_error:.1%}."
        )
    return Group(table, Text(), *map(Text, lines))


def validated(rows: tuple[Validated, ...]) -> Group:
    """Errors by source and over all, and what was left out and why."""
    sources = validation.by_source(rows)
    table = _table("Simulated against measured", "name", "cases", "left out", "mean error", "median", "bias", "tau", "regret")
    table.columns[0].header = "source"
    for name, one in [*sources.items(), ("all", validation.summary(rows, one_source=False))]:
        numbers = [f"{one.mape:.1%}", f"{one.median_ape:.1%}", f"{one.bias:+.1%}"] if one.n else ["-"] * 3
        tau = "-" if one.kendall_tau is None else f"{one.kendall_tau:.2f}"
        lost = "-" if one.regret is None else f"{one.regret:.1%}"
        table.add_row(name, str(one.n), str(one.left_out) if one.left_out else "", *numbers, tau, lost)
    reasons: dict[str, int] = {}
    for row in rows:
        if row.case.reason:
            reason = f"{row.case.source}: {row.case.reason}"
            reasons[reason] = reasons.get(reason, 0) + 1
    average, sight = "None of the cases can be simulated.", validation.by_sight(rows)
    if any(one.n for one in sources.values()):
        average = f"Mean over sources: {validation.macro(sources):.1%}, bias {validation.macro_bias(sources):+.1%}."
    apart = [
        f"{one.n} cases that their constants {verb} fitted to: {one.mape:.1%}, bias {one.bias:+.1%}."
        for one, verb in ((sight["seen"], "were"), (sight["unseen"], "were not"))
        if one.n and sight["seen"].n
    ]
    note = "" if sight["seen"].n else " No constant of a stack was fitted to any of these cases."
    parts: list[Text | Table] = [table, Text(), Text(average + note), *map(Text, apart)]
    sizes = validation.memory_errors(rows)
    if sizes:
        parts += [Text(), _memory(sizes)]
    compute = Counter(words for row in rows if (words := validation.rests_on(row)))
    if compute:
        parts += [Text(), Text("Compute", style=STYLE), *(Text(f"{many:4} {words}") for words, many in compute.items())]
    if reasons:
        parts += [Text(), Text("Left out", style=STYLE), *(Text(f"{many:4} {reason}") for reason, many in reasons.items())]
    return Group(*parts)
