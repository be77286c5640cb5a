"""`lightning-ingest doctor`: each finding, with its count, an example and the remedy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_client import send
from support.running import LIMIT_S, Ingester, cli_here, eventually, running
from support.spans import chat, text_message, texts, tool_request, tool_response

from otel_lightning.collector.check.doctor import PROBLEM_KINDS, Problem, diagnose
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.store import Store, open_store

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECOND = 10**9
NOW = 1_790_000_000 * SECOND
USAGE = {"gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 2}
WELL = chat(
    [text_message("user", "Hi")],
    text_message("assistant", "Hello"),
    {**USAGE, "gen_ai.request.model": "m", "gen_ai.response.finish_reasons": ["stop"]},
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "traces.duckdb") as opened:
        yield opened


def body(*spans: dict[str, Any]) -> bytes:
    """Return a request of spans: attributes, and where it differs scope, service, ids and times."""
    message = ExportTraceServiceRequest()
    for number, given in enumerate(spans, 1):
        group = message.resource_spans.add()
        service = group.resource.attributes.add(key="service.name")
        service.value.string_value = given.get("service", "agent")
        scope = group.scope_spans.add()
        scope.scope.name = given.get("scope", "")
        span = scope.spans.add(name=given.get("name", "chat"), span_id=number.to_bytes(8))
        span.trace_id = given.get("trace", number).to_bytes(16)
        span.parent_span_id = given["parent"].to_bytes(8) if "parent" in given else b""
        span.start_time_unix_nano = NOW + int(given.get("at", number) * SECOND)
        span.end_time_unix_nano = span.start_time_unix_nano + SECOND
        for key, value in texts(given.get("attributes", WELL)).items():
            span.attributes.add(key=key).value.string_value = value
        for name, fields in given.get("events", ()):
            event = span.events.add(name=name, time_unix_nano=span.end_time_unix_nano)
            for key, value in fields.items():
                event.attributes.add(key=key).value.string_value = value
    return message.SerializeToString()


def found(store: Store, tmp_path: Path, *bodies: bytes) -> dict[str, Problem]:
    """Return the findings by name after these requests."""
    received = NOW + 3600 * SECOND
    requests = [Request("traces", received + n, one) for n, one in enumerate(bodies)]
    load(store, requests, dead_letters=tmp_path / "letters")
    derive_all(store, tmp_path / "traces.duckdb")
    return {one.name: one for one in diagnose(store)}


def test_a_store_in_which_all_is_fine_has_no_findings(store: Store, tmp_path: Path) -> None:
    assert found(store, tmp_path, body({}, {})) == {}


def told(tmp_path: Path, exit_code: int) -> list[str]:
    """Return what the command says of the closed store."""
    result = cli_here("doctor", "--store", str(tmp_path / "traces.duckdb"))
    assert result.returncode == exit_code
    return result.stdout.splitlines()


def test_a_store_without_rewards_says_how_to_give_them(store: Store, tmp_path: Path) -> None:
    assert not found(store, tmp_path, body({}))
    store.close()
    no_fault, missing = told(tmp_path, 0)
    assert no_fault == "No faults were found in the traces."
    assert missing.startswith("The store has no rewards, and learning needs them: send")
    with open_store(tmp_path / "traces.duckdb") as again:
        event = ("gen_ai.evaluation.result", {"gen_ai.evaluation.score.value": "1.0"})
        assert not found(again, tmp_path, body({"trace": 9, "events": [event]}))
    assert told(tmp_path, 0) == [no_fault]


def test_a_store_without_model_calls_says_that_there_is_nothing_to_learn_from(
    store: Store, tmp_path: Path
) -> None:
    load(store, [Request("traces", NOW, body({"attributes": {}}))], dead_letters=tmp_path)
    assert not diagnose(store)  # it may become one once it is derived
    assert set(found(store, tmp_path, body({"attributes": {}, "trace": 2}))) == {"no_calls"}
    store.close()
    headline, example, remedy = told(tmp_path, 1)
    assert headline == "Nothing to learn from: none of 2 spans is a model call"
    assert example == f"    such as  span {1:016x} of trace {1:032x}"
    assert "which-package" in remedy


def test_a_store_that_received_nothing_names_the_ports_and_what_a_wrong_one_says(
    store: Store, tmp_path: Path
) -> None:
    store.close()
    result = cli_here("doctor", "--store", str(tmp_path / "traces.duckdb"))
    assert result.returncode == 1
    assert result.stdout.startswith("Nothing was received: the store has no spans and no log")
    assert 'it says "Expected HTTP/"' in result.stdout
    assert "gRPC exporters send to port 4317 and HTTP exporters to port 4318" in result.stdout


@pytest.mark.parametrize("has_grpc", [True, False])
def test_doctor_names_the_ports_of_the_running_ingester(tmp_path: Path, *, has_grpc: bool) -> None:
    more = [] if has_grpc else ["--grpc", "none"]
    with running(tmp_path / "traces.duckdb", *more) as ingester:
        output = cli_here("doctor", "--store", str(ingester.store)).stdout
        ports = [address.rpartition(":")[2] for address in (ingester.grpc, ingester.http)]
        assert f"HTTP exporters send to port {ports[1]}" in output
        assert (f"gRPC exporters send to port {ports[0]}" in output) == has_grpc
        assert "port 4317" not in output


def test_requests_that_were_refused_are_told_with_the_remedy_and_the_first_is_logged(
    starter: Callable[..., Ingester], capfd: pytest.CaptureFixture[str]
) -> None:
    ingester = starter("--token", "secret")
    right = "Bearer secret"
    assert send(ingester.http, path="/v1/traces", method="GET").status == 401  # no exporter
    for _ in range(2):
        assert send(ingester.http, body({})).status == 401
    assert send(ingester.http, body({}), Authorization=right, Host="agent.test").status == 403
    assert send(ingester.http, b"\xff", Authorization=right).status == 400
    assert send(ingester.http, body({}), Authorization=right, Content_Type="text/x").status == 415
    assert send(ingester.http, path="/v1/trace", Authorization=right).status == 404
    with grpc.insecure_channel(ingester.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(EXPORT)(body({}), timeout=LIMIT_S)
    told = cli_here("doctor", "--store", str(ingester.store))
    assert told.returncode == 1
    lines = told.stdout.splitlines()
    assert "requests since the start were refused, and lost: no token" in told.stdout
    counts = [line.partition(":")[0] for line in lines if " refused, and lost" in line]
    assert counts == [f"{n} of 7 requests since the start {were} refused, and lost"
                      for n, were in ((1, "was"), (3, "were"), *3 * [(1, "was")])]  # fmt: skip
    assert "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN" in told.stdout
    assert "with --allowed-host and that name" in told.stdout
    assert "secret" not in told.stdout
    assert ingester.stop() == 0
    log = capfd.readouterr().err
    for status, times in ((400, 1), (401, 2), (403, 1), (404, 1), (415, 1)):  # 401: both transports
        assert log.count(f"was refused ({status})") == times
    assert "A request of 127.0.0.1:" in log
    assert "secret" not in log


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        ("opentelemetry.instrumentation.openai.v1", "TRACELOOP_TRACE_CONTENT"),
        ("com.anthropic.claude_code.tracing", "OTEL_LOG_RAW_API_BODIES"),
        ("opentelemetry.instrumentation.genai.openai", "MESSAGE_CONTENT=span_only"),
        ("openinference.instrumentation.openai", "OPENINFERENCE_HIDE_INPUTS"),
        ("com.anthropic.sdk.python", "opentelemetry-instrumentation-anthropic"),
        ("airline", "its own documentation names the setting"),
    ],
)
def test_calls_without_content_have_the_switch_that_brings_it(
    store: Store, tmp_path: Path, scope: str, remedy: str
) -> None:
    bare = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **USAGE}
    one = found(store, tmp_path, body({"attributes": bare, "scope": scope}, {}))["content"]
    assert (one.number, one.total) == (1, 2)
    assert one.fault == f"without content, written by {scope}"
    assert "0000000000000001" in one.example
    assert remedy in one.remedy


def test_a_history_that_the_provider_keeps_is_found(store: Store, tmp_path: Path) -> None:
    held = chat(
        [tool_response("c", "r")],
        text_message("assistant", "b"),
        {**USAGE, "gen_ai.request.model": "m"},
    )
    assert found(store, tmp_path, body({"attributes": held}))["history"].number == 1


def test_rollouts_of_one_call_that_are_parts_of_one_are_found(store: Store, tmp_path: Path) -> None:
    part = chat(
        [text_message("user", "?")],
        tool_request("c", "f", {}),
        {**USAGE, "gen_ai.request.model": "m"},
    )
    one = found(store, tmp_path, body({"attributes": part}, {}))["parts"]
    assert (one.number, one.total) == (1, 2)
    assert one.example == f"rollout {1:032x}"


def test_repeated_ids_are_found(store: Store, tmp_path: Path) -> None:
    one = found(store, tmp_path, body({}), body({"at": 9}))["repeated_ids"]
    assert one.number == 1
    assert "span 0000000000000001" in one.example


def test_rewards_that_match_nothing_are_found(store: Store, tmp_path: Path) -> None:
    judged = ("gen_ai.evaluation.result", {"lightning.rollout.id": "gone"})
    ours = ("gen_ai.evaluation.result", {"gen_ai.evaluation.name": "ours"})
    one = found(store, tmp_path, body({"events": [judged, ours]}))["rewards"]
    assert (one.number, one.total) == (1, 2)
    assert "rollout gone" in one.example


def test_rewards_with_a_word_and_no_number_are_found(store: Store, tmp_path: Path) -> None:
    name = {"gen_ai.evaluation.name": "verdict"}
    word = ("gen_ai.evaluation.result", {**name, "gen_ai.evaluation.score.label": "pass"})
    number = ("gen_ai.evaluation.result", {**name, "gen_ai.evaluation.score.value": "1"})
    one = found(store, tmp_path, body({"events": [word]}, {"events": [number]}))["words"]
    assert (one.number, one.total) == (1, 2)
    assert one.fault == "of the name verdict with a word and no number"
    assert one.example.startswith("'pass' of rollout ")


def test_arms_without_a_propensity_are_found(store: Store, tmp_path: Path) -> None:
    flag = {"feature_flag.key": "prompt", "feature_flag.result.variant": "b"}
    chosen = ("feature_flag.evaluation", flag)
    known = ("feature_flag.evaluation", {**flag, "lightning.propensity": "0.5"})
    one = found(store, tmp_path, body({"events": [chosen]}, {"events": [known]}))["arms"]
    assert (one.number, one.total) == (1, 2)
    assert one.fault == "of prompt without a propensity"


def test_calls_without_token_counts_are_found(store: Store, tmp_path: Path) -> None:
    silent = {key: value for key, value in WELL.items() if key not in USAGE}
    one = found(store, tmp_path, body({"attributes": silent, "scope": "x"}, {}))["tokens"]
    assert (one.number, one.total) == (1, 2)
    assert "include_usage" in one.remedy


def test_calls_that_were_read_in_part_are_found(store: Store, tmp_path: Path) -> None:
    half = {key: value for key, value in WELL.items() if key != "gen_ai.input.messages"}
    one = found(store, tmp_path, body({"attributes": half, "scope": "x"}))["partly"]
    assert one.number == 1
    assert "GenAI conventions or OpenInference" in one.remedy


def test_spans_on_which_a_reader_broke_are_found(store: Store, tmp_path: Path) -> None:
    odd = {"mlflow.spanType": '"TOOL"', "mlflow.spanFunctionName": "5"}
    one = found(store, tmp_path, body({"attributes": odd}))["unread"]
    assert one.number == 1
    assert "name is 5" in one.example


def test_clocks_that_disagree_are_found(store: Store, tmp_path: Path) -> None:
    below = {"trace": 1, "parent": 1, "at": 0, "service": "tools", "attributes": {}}
    ahead = {"at": 7200, "service": "early"}
    names = found(store, tmp_path, body({"trace": 1, "at": 1}, below, ahead))
    early = "of tools below agent that began before the span that called them"
    assert names["clocks"].fault == early
    assert names["ahead"].fault == "of early that ended after they were received"


def test_the_command_prints_findings_and_exits_with_1(store: Store, tmp_path: Path) -> None:
    silent = {key: value for key, value in WELL.items() if key not in USAGE}
    found(store, tmp_path, body({"attributes": silent, "scope": "x"}))
    store.close()
    result = cli_here("doctor", "--store", str(tmp_path / "traces.duckdb"))
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "1 of 1 call without token counts, written by x"
    assert lines[1].startswith("    such as  span 0000000000000001")
    assert lines[2].startswith("    remedy   for streams")


def test_control_characters_of_senders_do_not_reach_the_terminal(
    store: Store, tmp_path: Path
) -> None:
    same = {"trace": 7, "name": "\x1b[2J"}
    later = [{**same, "at": 1, "scope": "\x1b]0;title\x07"}, {**same, "at": 2}]
    load(
        store,
        [Request("traces", NOW, body(one)) for one in (later[0], later[1])],
        dead_letters=tmp_path / "letters",
    )
    store.close()
    for command in ("doctor", "check"):
        result = cli_here(command, "--store", str(tmp_path / "traces.duckdb"))
        assert result.returncode == 1
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout
    result = cli_here("doctor", "--store", str(tmp_path / "traces.duckdb"))
    assert "('\\x1b[2J'" in result.stdout


def test_every_finding_has_a_remedy() -> None:
    assert all(one.remedy for one in PROBLEM_KINDS if one.name != "content")


@pytest.mark.slow
def test_a_running_ingester_is_diagnosed_with_the_same_statements(ingester: Ingester) -> None:
    sent = body({"attributes": {"gen_ai.operation.name": "chat"}})
    assert send(ingester.http, sent).status == 200
    told: list[str] = []

    def is_found() -> bool:
        result = cli_here("doctor", "--store", str(ingester.store))
        assert not result.stderr
        told.append(result.stdout)
        return "without content" in result.stdout

    eventually(is_found)
    assert "read only in part" in told[-1]
