"""The agent never sees an error of ours."""

import pytest

from otel_lightning.instrumentation.guard import never_raise


def test_what_our_bookkeeping_raises_is_logged_and_kept_from_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @never_raise
    def bookkeeping() -> str:
        raise RuntimeError("not the agent's business")

    assert bookkeeping() is None
    assert "stepped aside" in caplog.text
    assert "not the agent's business" in caplog.text


def test_what_stops_the_agent_stops_us_too() -> None:
    @never_raise
    def bookkeeping() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bookkeeping()


def test_an_error_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @never_raise
    def bookkeeping(error: type[Exception]) -> None:
        raise error("again")

    for _ in range(3):
        bookkeeping(ValueError)
    bookkeeping(KeyError)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2
