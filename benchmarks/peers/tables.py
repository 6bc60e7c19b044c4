"""Tables of plans evaluated under the cost models of other planners."""

from __future__ import annotations

from benchmarks.peers import dtfm, holmes, malleus, malleus_plans, sailor


def show() -> None:
    """Print the tables of all peers."""
    show_dtfm()
    show_holmes()
    show_malleus()
    show_malleus_plans()
    show_sailor()


def show_dtfm() -> None:
    """Print DT-FM's cost and the simulated step of plans on its five cases."""
    print(f"{'':<18}{'cost by DT-FM (s)':>36}{'simulated step (s)':>24}")
    print(f"{'DT-FM':<18}{'its search':>12}{'structured':>12}{'certified':>12}{'structured':>12}{'certified':>12}{'CPU':>9}")
    for row in dtfm.measure():
        costs = f"{row.genetic:>12.3f}{row.structured:>12.3f}{row.certified:>12.3f}"
        print(f"{row.case:<18}{costs}{row.structured_step_s:>12.2f}{row.certified_step_s:>12.2f}{row.seconds:>7.2f} s")
    print()


def show_holmes() -> None:
    """Print the layer splits of Holmes' scripts and of certified plans."""
    print(f"{'Holmes':<24}{'published':>12}{'simulated':>12}{'certified':>12}{'simulated':>12}")
    for row in holmes.measure():
        theirs, ours = (" | ".join(map(str, layers)) for layers in (row.published, row.certified))
        print(f"{row.name:<24}{theirs:>12}{row.published_s:>10.2f} s{ours:>12}{row.certified_s:>10.2f} s")
    print()


def show_malleus() -> None:
    """Print the step under Malleus' model (T) of its layout and of the layouts found here."""
    print(f"{'Malleus':<24}{'its layout':>12}{'joint':>12}{'one split':>12}{'CPU':>9}")
    for row in malleus.measure():
        reported = f"{row.reported:.1f}" if row.reported else "-"
        ours = f"{malleus.judge(row.joint):>12.1f}{malleus.judge(row.uniform):>12.1f}"
        print(f"{row.name:<24}{reported:>12}{ours}{row.seconds:>7.2f} s")
        for pipeline, microbatches in row.joint:
            slowness = ", ".join(f"{group.slowness:g}" for group in pipeline.groups)
            print(f"  {microbatches} microbatches, layers {' | '.join(map(str, pipeline.layers))}, slowness {slowness}")
    print()


def show_malleus_plans() -> None:
    """Print the simulated step of layouts of Malleus' cases, as plans of unlike pipelines with slow devices."""
    print(f"{'Malleus, simulated':<24}{'layout':<12}{'T':>9}{'step':>12}")
    for row in malleus_plans.measure():
        print(f"{row.case:<24}{row.layout:<12}{row.judged:>9.1f}{row.step_s:>10.2f} s")
    print()


def show_sailor() -> None:
    """Print Sailor's seconds of its own plan, of the best layout, and of the best one with one tp for all stages."""
    print(f"{'Sailor, seconds':<18}{'its plan':>12}{'any tp':>12}{'one tp':>12}{'CPU':>9}")
    for row in sailor.measure():
        ours = f"{sailor.judge(row.found):>12.4f}{sailor.judge(row.alike):>12.4f}"
        print(f"{row.name:<18}{row.sailor:>12.4f}{ours}{row.seconds:>7.1f} s")
        for words, layout in (("any tp", row.found), ("one tp", row.alike)):
            stages = ", ".join(f"{s.device} tp {s.tp}: {s.past - s.first}" for s in layout.stages)
            print(f"  {words}: dp {layout.dp}, microbatches of {layout.samples}; {stages}")
    print()
