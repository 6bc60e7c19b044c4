# ruff: noqa: E501 - a fault and its line stand side by side
"""Quantities: text with a unit becomes an SI value, and anything else is refused with an example of what would be right."""

from __future__ import annotations

import pytest

from sim import units


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("200 Gbit/s", "rate", 25e9),
        ("25 Gbit/s", "rate", 3.125e9),
        ("8 bit/s", "rate", 1.0),
        ("300 GB/s", "rate", 300e9),
        ("1 GiB/s", "rate", 1073741824.0),
        ("2.039 TB/s", "rate", 2.039e12),
        ("1e3 MB/s", "rate", 1e9),
        ("200Gbit/s", "rate", 25e9),
        ("  200 Gbit/s  ", "rate", 25e9),
        ("80 GiB", "size", 85899345920.0),
        ("80 GB", "size", 80e9),
        ("1 kB", "size", 1000.0),
        ("1 KiB", "size", 1024.0),
        ("7 B", "size", 7.0),
        ("3 s", "time", 3.0),
        ("2 min", "time", 120.0),
        ("1.5 h", "time", 5400.0),
        ("0 us", "time", 0.0),
        ("312 TFLOP/s", "compute rate", 312e12),
        ("1.5 PFLOP/s", "compute rate", 1.5e15),
        ("400 W", "power", 400.0),
        ("1.2 kW", "power", 1200.0),
        ("1.80 USD/h", "price", 0.0005),
    ],
)
def test_text_with_a_unit_is_its_si_value(text: str, kind: str, value: float) -> None:
    assert units.parse(text, kind) == pytest.approx(value, rel=1e-15, abs=0)


@pytest.mark.parametrize(("text", "seconds"), [("5 us", 5e-6), ("12.5 ms", 12.5e-3), ("14 us", 14e-6), ("3 ns", 3e-9)])
def test_small_times_are_scaled(text: str, seconds: float) -> None:
    assert units.parse(text, "time") == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        # a bare number says nothing
        (200, "rate", "200 is not a rate: the unit is missing; write for example '200 Gbit/s'"),
        (2.5, "time", "2.5 is not a time: the unit is missing; write for example '5 us'"),
        (True, "size", "True is not a size: the unit is missing; write for example '80 GiB'"),
        (None, "power", "None is not a power: the unit is missing; write for example '400 W'"),
        ("200", "rate", "'200' is not a rate; write for example '200 Gbit/s'"),
        ("", "rate", "'' is not a rate; write for example '200 Gbit/s'"),
        # a unit that is not one of its kind
        ("200 gbit/s", "rate", "'200 gbit/s' is not a rate: unit 'gbit/s' is unknown here; write for example '200 Gbit/s'"),
        ("200 Gb/s", "rate", "'200 Gb/s' is not a rate: unit 'Gb/s' is unknown here; write for example '200 Gbit/s'"),
        ("400 GBit/s", "rate", "'400 GBit/s' is not a rate: unit 'GBit/s' is unknown here; write for example '400 Gbit/s'"),
        ("25 Gbps", "rate", "'25 Gbps' is not a rate: unit 'Gbps' is unknown here; write for example '25 Gbit/s'"),
        ("10 GBps", "rate", "'10 GBps' is not a rate: unit 'GBps' is unknown here; write for example '10 GB/s'"),
        ("80 gib", "size", "'80 gib' is not a size: unit 'gib' is unknown here; write for example '80 GiB'"),
        ("200 GB", "rate", "'200 GB' is not a rate: unit 'GB' is unknown here; write for example '200 Gbit/s'"),
        ("80 GB/s", "size", "'80 GB/s' is not a size: unit 'GB/s' is unknown here; write for example '80 GiB'"),
        ("5 usec", "time", "'5 usec' is not a time: unit 'usec' is unknown here; write for example '5 us'"),
        ("312 TFLOPS", "compute rate", "'312 TFLOPS' is not a compute rate: unit 'TFLOPS' is unknown here; write for example '312 TFLOP/s'"),
        # a number that is not one
        ("-200 Gbit/s", "rate", "'-200 Gbit/s' is not a rate; write for example '200 Gbit/s'"),
        ("Gbit/s", "rate", "'Gbit/s' is not a rate; write for example '200 Gbit/s'"),
        ("2 x 200 Gbit/s", "rate", "'2 x 200 Gbit/s' is not a rate; write for example '200 Gbit/s'"),
        ("1,000 GB", "size", "'1,000 GB' is not a size; write for example '80 GiB'"),
        ("inf s", "time", "'inf s' is not a time; write for example '5 us'"),
        ("nan s", "time", "'nan s' is not a time; write for example '5 us'"),
        ("1e400 s", "time", "'1e400 s' is too large"),
    ],
)  # fmt: skip
def test_other_texts_are_refused_with_an_example(value: object, kind: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.parse(value, kind)
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", sorted(units.KINDS))
def test_the_example_of_a_kind_is_one_of_it(kind: str) -> None:
    assert units.parse(units.KINDS[kind][1], kind) > 0


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (units.rate_text(25e9), "200 Gbit/s"),
        (units.rate_text(1.25e8), "1 Gbit/s"),
        (units.bytes_per_second_text(300e9), "300 GB/s"),
        (units.bytes_per_second_text(2.039e12), "2.039 TB/s"),
        (units.flops_text(312e12), "312 TFLOP/s"),
        (units.flops_text(12.0), "12 FLOP/s"),
        (units.size_text(80 * 2**30), "80 GiB"),
        (units.size_text(1536), "1.5 KiB"),
        (units.size_text(12), "12 B"),
        (units.time_text(7.74), "7.74 s"),
        (units.time_text(0.0125), "12.5 ms"),
        (units.time_text(5e-6), "5 us"),
        (units.time_text(0.0), "0 s"),
    ],
)
def test_quantities_are_written_as_people_write_them(text: str, written: str) -> None:
    assert text == written


@pytest.mark.parametrize(
    ("write", "kind", "value"),
    [
        (units.rate_text, "rate", 12.5e9),
        (units.rate_text, "rate", 3.125e9),
        (units.bytes_per_second_text, "rate", 900e9),
        (units.flops_text, "compute rate", 989.5e12),
        (units.size_text, "size", 141 * 2**30),
        (units.size_text, "size", 1536.0),
        (units.time_text, "time", 0.25),
        (units.time_text, "time", 12e-6),
        (units.time_text, "time", 61.5),
    ],
)
def test_written_quantities_are_read_back(write: object, kind: str, value: float) -> None:
    assert units.parse(write(value), kind) == pytest.approx(value, rel=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["100 Gbit/s", "2.5 Gbit/s"], ("Gbit/s", (100.0, 2.5))),
        (["500 Mbit/s", "1 Gbit/s", "1 MB/s"], ("Mbit/s", (500.0, 1000.0, 8.0))),
        (["1 s", "100 ms"], ("s", (1.0, 0.1))),
        (["40 GiB"], ("GiB", (40.0,))),
        (["1 s", "1 GB"], None),
        (["1 s", 1], None),
        (["1f1b"], None),
        (["1 parsec"], None),
        ([], None),
    ],
)
def test_quantities_of_one_kind_are_numbers_in_the_first_ones_unit(values, found) -> None:
    assert units.common_unit(values) == (found if found is None else (found[0], pytest.approx(found[1], rel=1e-12)))


@pytest.mark.parametrize(
    ("seconds", "said"), [(26100.0, "7.25 h"), (720.0, "12 min"), (59.0, "59 s"), (3.6e6, "1,000 h"), (9.1e7, "25,300 h")]
)
def test_long_times_have_large_units(seconds: float, said: str) -> None:
    assert units.duration_text(seconds) == said


@pytest.mark.parametrize(("tokens", "said"), [(2e12, "2 T"), (3e11, "300 B"), (1e8, "100 M")])
def test_tokens_have_the_unit_that_fits(tokens: float, said: str) -> None:
    assert units.tokens_text(tokens) == said
