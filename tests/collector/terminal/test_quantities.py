"""Ages and sizes, as options have them; numbers, as people read them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_lightning.collector.page.text import duration
from otel_lightning.collector.terminal.quantities import parse_age, parse_size, significant


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


@given(value=st.floats(0.0001, 1e14), digits=st.integers(2, 5))
@example(value=999.7, digits=3)
@example(value=41_665.0, digits=4)
def test_a_usual_number_is_written_without_exponent_and_right_to_its_digits(
    value: float, digits: int
) -> None:
    text = significant(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert significant(-value, digits) == f"-{text}"


@given(nanoseconds=st.integers(1_000, 3_600_000_000_000))
@example(nanoseconds=999_700_000)
def test_a_duration_has_no_exponent_and_its_smaller_unit_stays_below_a_second(
    nanoseconds: int,
) -> None:
    text = duration(nanoseconds)
    assert "e" not in text
    if text.endswith(" ms"):
        assert float(text.removesuffix(" ms")) < 1000
