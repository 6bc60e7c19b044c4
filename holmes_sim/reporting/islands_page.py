"""Contents of a plan of islands as one HTML page: headline, sections, style."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from holmes_sim.launchable import launches_islands
from holmes_sim.printing import islands as words
from holmes_sim.reporting.colours import islands_css
from holmes_sim.reporting.islands_contents import IslandsContents, fullest_stage
from holmes_sim.reporting.islands_sections import in_order
from holmes_sim.reporting.markup import number, prose
from holmes_sim.reporting.page import Page, assembled, made_by, tiles
from sim.sync import PRICES
from sim.units import time_text


def islands_page(contents: IslandsContents) -> Page:
    """The whole page. Equal contents give equal bytes."""
    plan = contents.plan
    parts = {
        "title": escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        "style": islands_css(max(island.config.pp for island in plan.islands), len(plan.islands)),
        "heading": escape(words.heading(plan)),
        "layout": escape(f"sync {plan.sync}"),
        "tiles": tiles(_tiles(contents)),
        "lead": _lead(contents),
        "foot": escape(f"Plan of islands by {made_by(plan.made_by)}"),
        "script": "",
    }
    return assembled(parts, [(section.NAME, section.TITLE, section.html(contents)) for section in in_order()])


def _tiles(contents: IslandsContents) -> Iterator[tuple[str, str]]:
    """Tiles with the tokens per second, what they are worth, the outer period and the highest memory use."""
    numbers, worth, plan = contents.prediction, contents.run.worth, contents.plan
    yield "tokens/s", number("plan/prediction/tokens_per_s", numbers.tokens_per_s, f"{numbers.tokens_per_s:,.0f}")
    if worth is None:
        yield "a token is worth", "<b>unknown</b>"
        yield "effective tokens/s", "<b>unknown</b>"
    else:
        spread = worth.high > worth.low
        around = f" ({worth.low:.2f} to {worth.high:.2f})" if spread else ""
        value = number("simulation/token_worth/expected", worth.expected, f"{worth.expected:.2f}" if spread else "1")
        yield "a token is worth", f"{value}{around} tokens of synchronous training"
        low, expected, high = (numbers.tokens_per_s * share for share in (worth.low, worth.expected, worth.high))
        around = f", {low:,.0f} to {high:,.0f}" if spread else ""
        yield "effective tokens/s", number("effective/tokens_per_s", expected, f"{expected:,.0f}") + around
    yield "MFU", number("plan/prediction/mfu", numbers.mfu, f"{numbers.mfu:.1%}")
    period = number("plan/prediction/period_s", numbers.period_s, time_text(numbers.period_s))
    yield "outer period", f"{period}, {words.inner_steps(plan)}"
    exchange = number("plan/prediction/exchange_s", numbers.exchange_s, time_text(numbers.exchange_s))
    yield "exchanges on the network", exchange + words.beside(numbers)
    waited = number("plan/prediction/exposed_s", numbers.exposed_s, time_text(numbers.exposed_s))
    of_period = f", {numbers.exposed_s / numbers.period_s:.1%} of the period"
    yield "slowest island waits for them", f"{waited}{of_period}" if words.is_waited_for(numbers) else "<b>never</b>"
    if plan.sync.aggregation != "mean":
        yield "wrong islands that it withstands", f"<b>{words.withstood(plan)}</b>"
        yield "noise of the result", f"<b>{words.noise(plan)}</b>"
    fullest = [fullest_stage(step) for step in contents.steps]
    island = max(range(len(fullest)), key=lambda index: fullest[index][0])
    share, pp_rank = fullest[island]
    value = number(f"islands/{island}/memory/{pp_rank}/share", share, f"{share:.1%}")
    yield "highest memory use", f"{value} in stage {pp_rank} of island {island}"


def _lead(contents: IslandsContents) -> str:
    """What the strategy gives up, what a token's worth rests on, the certificate, and what launches the islands."""
    plan = contents.plan
    proof = "none. Plans of `holmes-sim plan --sync` have one."
    if plan.certificate is not None:
        proof = words.certificate(plan.certificate)
    launches = launches_islands(plan).removeprefix("Launched ") or "not asked for so many ranks."
    lines = {
        "Gives up": [f"{PRICES[plan.sync.price]}.", *words.worth_source(contents.run.worth)],
        "Certificate": [proof],
        "Launched": [launches],
    }
    rows = (
        f"<div><dt>{name}</dt><dd>{prose(' '.join(_sentence(line) for line in text))}</dd></div>"
        for name, text in lines.items()
    )
    return f'<dl class="lead">{"".join(rows)}</dl>'


def _sentence(text: str) -> str:
    """A text with a capital letter at its start."""
    return text[:1].upper() + text[1:]
