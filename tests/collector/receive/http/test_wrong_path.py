"""Who sends to a wrong path hears what is wrong with it, and the right URL."""

from collections.abc import Callable

import pytest
from support.otlp_client import metric, send
from support.requests_by_hand import trace_request
from support.running import Ingester

from otel_lightning.collector.receive.http.application import SIGNALS
from otel_lightning.collector.receive.http.wrong_path import MOST_LOGGED, WrongPaths, why_wrong

URL = "http://ours:4318"
TOLD = {
    "/": ("the URL has no path", "traces"),
    "//": ("the URL has no path", "traces"),
    "/v1/traces/v1/traces": ("'/v1/traces/v1/traces' has the path of a signal twice", "traces"),
    "/v1/traces/v1/logs": ("'/v1/traces/v1/logs' has the path of a signal twice", "logs"),
    "/api/public/otel/v1/traces": (
        "'/api/public/otel/v1/traces' has '/api/public/otel' before '/v1/traces'",
        "traces",
    ),
    "/v1/trace": ("there is no path '/v1/trace'", "traces"),
    "/v1/traces/": ("there is no path '/v1/traces/'", "traces"),
    "/api/v2/spans": ("there is no path '/api/v2/spans'", "traces"),
    "/v1/log": ("there is no path '/v1/log'", "logs"),
    "/otlp/v1/metrics": ("'/otlp/v1/metrics' has '/otlp' before '/v1/metrics'", "metrics"),
}


@pytest.mark.parametrize("path", TOLD)
def test_a_typical_wrong_path_is_reported_in_one_sentence_with_the_right_url(path: str) -> None:
    what, signal = TOLD[path]
    right = f"{URL}/v1/{signal}"
    variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    assert why_wrong(path, URL, tuple(SIGNALS)) == (
        f"{what}: send {signal} to {right}, which is OTEL_EXPORTER_OTLP_ENDPOINT={URL} or "
        f"{variable}={right}."
    )


def test_a_path_that_is_meant_for_nothing_of_ours_names_the_known_ones() -> None:
    problem = why_wrong("/favicon.ico", URL, tuple(SIGNALS))
    assert problem == f"no such path '/favicon.ico'. Known: {', '.join(SIGNALS)}."


def test_a_long_or_odd_path_is_shown_short_and_without_control_characters() -> None:
    problem = why_wrong("/v1/trace\x1b[2J" + "x" * 1000, URL, tuple(SIGNALS))
    assert problem.startswith("no such path '/v1/trace?[2Jxxx")
    assert len(problem) < 300


def test_many_paths_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    paths = WrongPaths()
    for number in range(2 * MOST_LOGGED):
        for _ in range(2):
            paths.note(f"/{number}", "told")
    assert len(caplog.records) == MOST_LOGGED


def test_the_answer_the_log_and_the_counter_tell_a_wrong_path(
    capfd: pytest.CaptureFixture[str], starter: Callable[[], Ingester]
) -> None:
    ingester = starter()
    paths = ("/", "/v1/traces/v1/traces", "/api/public/otel/v1/traces", "/v1/trace")
    for path in paths:
        for _ in range(2):
            reply = send(ingester.http, trace_request("lost").SerializeToString(), path=path)
            assert reply.status == 404
            assert f": send traces to http://{ingester.http}/v1/traces, " in reply.reason()
    assert send(ingester.http, path="/favicon.ico", method="GET").status == 404
    refused = 'lightning_refused_requests_total{status="404",transport="http"}'
    assert metric(ingester.http, refused) == 2 * len(paths)
    assert send(ingester.http, path="/", method="GET").status < 400  # to the page
    assert ingester.stop() == 0
    log = capfd.readouterr().err
    assert log.count("was refused (404)") == len(paths)
    assert log.count(f"send traces to http://{ingester.http}/v1/traces") == len(paths)
