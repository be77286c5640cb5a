"""Variables of a shell with which an agent's spans do not arrive."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.running import Ingester, cli_here

from otel_lightning.collector.check.sender_variables import Fault, faults
from otel_lightning.collector.store import Server

PLAIN = Server(1, "", "", "", "127.0.0.1:4318", grpc="127.0.0.1:4317")
HTTP_ONLY = Server(1, "", "", "", "127.0.0.1:4318")
TLS = Server(1, "", "", "", "0.0.0.0:4318", tls_cert="cert.pem", grpc="0.0.0.0:4317")
ENDPOINT, TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
HTTP, GRPC = {PROTOCOL: "http/protobuf"}, {PROTOCOL: "grpc"}


def found(
    variables: dict[str, str], server: Server | None = PLAIN, *, needs_token: bool = False
) -> list[Fault]:
    return list(faults(variables, server, needs_token=needs_token))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"},
        {ENDPOINT: "http://127.0.0.1:4318"},
        {ENDPOINT: "http://localhost:4317"},
        {ENDPOINT: "http://localhost:4317/", **GRPC},
        {ENDPOINT: "localhost:4317"},
        {TRACES: "http://127.0.0.1:4318/v1/traces", **HTTP},
        {ENDPOINT: "http://127.0.0.1:4318/v1/traces", TRACES: "http://127.0.0.1:4318/v1/traces"},
        # A Collector in front, on another machine.
        {ENDPOINT: "https://collector.example/otlp", "HTTPS_PROXY": "http://proxy:3128"},
        {ENDPOINT: "http://127.0.0.1:4318", "HTTP_PROXY": "http://proxy:3128",
         "NO_PROXY": "localhost,127.0.0.1"},
        {ENDPOINT: "http://127.0.0.1:4318", "HTTP_PROXY": "http://p:1", "NO_PROXY": "127.0.0.0/8"},
        {ENDPOINT: "http://127.0.0.1:4318", "HTTPS_PROXY": "http://proxy:3128"},
        {ENDPOINT: "http://[::1"},
        {ENDPOINT: "http://127.0.0.1:port"},
    ],
)  # fmt: skip
def test_variables_with_which_spans_arrive_are_no_fault(variables: dict[str, str]) -> None:
    if "port" not in str(variables):
        assert found(variables) == []
    found(variables, None)


@pytest.mark.parametrize(
    ("variables", "server", "fault", "remedy"),
    [
        ({"OTEL_SDK_DISABLED": "TRUE"}, None, "records nothing", "unset OTEL_SDK_DISABLED"),
        ({"OTEL_TRACES_EXPORTER": "none"}, None, "not sent", "unset OTEL_TRACES_EXPORTER"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, None, "no span", "unset OTEL_TRACES_SAMPLER"),
        ({"LIGHTNING_INSTRUMENT": "false"}, None, "no tracing", "unset LIGHTNING_INSTRUMENT"),
        ({ENDPOINT: "http://127.0.0.1:4318/v1/traces"}, None, "twice", "leave out /v1/traces"),
        ({TRACES: "http://127.0.0.1:4318"}, None, "does not end in /v1/traces", "add /v1/traces"),
        ({ENDPOINT: "http://localhost:4317", **HTTP}, PLAIN, "HTTP is sent to the port of the",
         "grpc, or send HTTP to port 4318"),
        ({ENDPOINT: "http://localhost:4318", **GRPC}, PLAIN, "gRPC is sent to the port of the",
         "http/protobuf, or send gRPC to port 4317"),
        ({ENDPOINT: "http://localhost:4318", **GRPC}, HTTP_ONLY, "gRPC is sent to the port of the",
         "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        ({ENDPOINT: "http://localhost", **HTTP}, PLAIN, "takes HTTP at port 4318", "that port"),
        ({ENDPOINT: "http://localhost:9"}, HTTP_ONLY, "takes HTTP at port 4318", "that port"),
        ({ENDPOINT: "https://localhost:4318"}, PLAIN, "speaks no TLS", "write http://"),
        ({ENDPOINT: "http://traces.example:4318"}, TLS, "speaks TLS", "write https://"),
        ({ENDPOINT: "http://127.0.0.1:4318", "http_proxy": "http://u:password@proxy:1"}, None,
         "127.0.0.1 goes to the proxy", "set NO_PROXY=127.0.0.1"),
        ({ENDPOINT: "http://localhost:4317", "https_proxy": "http://proxy:1"}, None,
         "localhost goes to the proxy", "set NO_PROXY=localhost"),
    ],
)  # fmt: skip
def test_a_variable_that_keeps_spans_away_is_named_with_its_remedy(
    variables: dict[str, str], server: Server | None, fault: str, remedy: str
) -> None:
    (one,) = found(variables, server)
    assert fault in one.fault
    assert remedy in one.remedy
    assert one.setting.partition("=")[0] in variables


def test_a_missing_token_is_named_and_no_header_or_password_is_shown() -> None:
    headers = "OTEL_EXPORTER_OTLP_HEADERS"
    (one,) = found({headers: "x-key=hidden"}, needs_token=True)
    assert "has no token" in one.fault
    assert found({headers: "Authorization=Bearer%20hidden"}, needs_token=True) == []
    endpoint = {TRACES: "http://user:hidden@127.0.0.1:9/", **HTTP}
    shown = found({**endpoint, "http_proxy": "http://u:hidden@p"})
    assert len(shown) == 3
    assert "hidden" not in str([one, *shown])
    assert "http://127.0.0.1:9/" in shown[0].setting


def test_doctor_tells_them_if_nothing_was_received(
    starter: Callable[..., Ingester], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingester = starter("--token", "secret")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    told = cli_here("doctor", "--store", str(ingester.store))
    assert told.returncode == 1
    assert "In this shell: OTEL_TRACES_SAMPLER=always_off: no span is sampled" in told.stdout
    assert "lightning-ingest asks for one" in told.stdout


def test_doctor_tells_them_where_there_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    told = cli_here("doctor", "--store", str(tmp_path / "none.duckdb"))
    assert told.returncode == 1
    assert "In this shell: OTEL_TRACES_SAMPLER=always_off: no span is sampled" in told.stdout
    assert "There is no store at" in told.stderr


def test_doctor_tells_none_of_a_store_that_received_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    (tmp_path / "spans.jsonl").write_text(
        '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"' + "1" * 32
        + '","spanId":"' + "2" * 16 + '","name":"one"}]}]}]}\n'
    )  # fmt: skip
    store = str(tmp_path / "traces.duckdb")
    loaded = cli_here("load", str(tmp_path / "spans.jsonl"), "--store", store)
    assert loaded.returncode == 0, loaded.stderr
    assert "In this shell" not in cli_here("doctor", "--store", store).stdout
