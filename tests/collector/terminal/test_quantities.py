"""Ages and sizes, as options have them."""

import pytest

from otel_lightning.collector.terminal.quantities import parse_age, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5_400), ("30d", 2_592_000), ("2w", 1_209_600)]
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "0d", "30 years", "30D"])
def test_what_is_no_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="Example: 30d"):
        parse_age(text)


def test_a_size_is_a_number_and_a_unit() -> None:
    assert (parse_size("20GB"), parse_size("1.5MiB")) == (20 * 10**9, 1_572_864)
