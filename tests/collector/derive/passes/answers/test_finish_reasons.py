"""Finish reasons of calls."""

from support.regressions import rows_of


def test_a_finish_reason_error_is_no_error_of_a_call_that_answered() -> None:
    (call,) = rows_of("finish_error").llm_calls
    assert (call.error_type, call.error_message) == (None, None)
