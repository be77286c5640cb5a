"""Results of tools that tell of a failure, and those that only look like it."""

import pytest

from otel_lightning.collector.derive.rows import ToolCall


@pytest.mark.parametrize(
    "result",
    [
        "Error: no such city",
        "error executing tool get_weather: timeout",
        "ValueError: no such city",
        "An error: it broke",
        "An error occurred while running the tool. Please try again.",
        "Traceback (most recent call last):\n  File",
        "Tool execution failed",
        "<error>gone</error>",
        {"isError": True, "content": [{"type": "text", "text": "gone"}]},
        '{"isError": true, "content": []}',
        {"error": "gone"},
        {"status": "error", "content": "gone"},
        [{"type": "text", "text": "Error: gone"}],
    ],
)
def test_a_failure_that_is_reported_is_found(result: object) -> None:
    assert ToolCall("f", result=result).told_error is True


@pytest.mark.parametrize(
    "result",
    [
        "No errors: all is well",
        "Errors are explained on page 3.",
        "21 C",
        5,
        {"isError": False, "content": [{"type": "text", "text": "Error: quoted"}]},
        {"error": None, "value": 3},
        {"error": "a column of this name", "value": 3},
        [],
        {},
        "",
    ],
)
def test_what_tells_of_no_failure_is_none(result: object) -> None:
    assert ToolCall("f", result=result).told_error is False


def test_without_a_result_nothing_is_reported() -> None:
    assert ToolCall("f").told_error is None
