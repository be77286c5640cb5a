"""Tracing that variables alone start, with plain `python agent.py`."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.running import finish

from otel_lightning.instrumentation import start

START_UP_FILE = Path(__file__).parents[2] / "instrumentation" / "zz_otel_lightning.pth"
AGENT = """
import openai
answer = openai.OpenAI().chat.completions.create(
    model="small", messages=[{"role": "user", "content": "Hi"}]
)
print(answer.choices[0].message.content)
"""
LOADED = """
import sys
print(sorted(n for n in sys.modules if n.split(".")[0] in ("opentelemetry", "otel_lightning")))
"""


def test_variables_alone_trace_an_untouched_script(agent: Any, plain_bin: Path) -> None:
    process = agent.finish(AGENT, under=(), bin_folder=plain_bin, LIGHTNING_ROLLOUT_ID="rollout-1")
    assert (process.returncode, process.stdout, process.stderr) == (0, "Hello\n", "")
    (span,) = agent.sink.llm_spans()
    assert span.attributes["lightning.rollout.id"] == "rollout-1"


@pytest.mark.slow
def test_under_the_launcher_the_start_up_file_starts_nothing_of_its_own(
    agent: Any, plain_bin: Path
) -> None:
    launcher = ("opentelemetry-instrument",)
    for name in launcher:
        (plain_bin / name).unlink(missing_ok=True)
        (plain_bin / name).symlink_to(Path(sys.executable).parent / name)
    process = agent.finish(AGENT, under=launcher, bin_folder=plain_bin)
    assert (process.returncode, process.stdout, process.stderr) == (0, "Hello\n", "")
    assert len(agent.sink.llm_spans()) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LIGHTNING_STORE": "traces.duckdb"},
        {"OTEL_SERVICE_NAME": "desk", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "desk", "LIGHTNING_INSTRUMENT": "false"},
    ],
)
def test_nothing_of_opentelemetry_is_loaded_where_no_variable_asks(
    plain_bin: Path, variables: dict[str, str]
) -> None:
    process = finish(plain_bin / "python", "-c", LOADED, env=variables, check=True)
    ours = ["otel_lightning", "otel_lightning.instrumentation"]
    assert process.stderr == ""
    assert process.stdout in ("[]\n", f"{[*ours, 'otel_lightning.instrumentation.start']}\n")
    assert variables or process.stdout == "[]\n"


@pytest.mark.parametrize("variables", [{}, {"LIGHTNING_STORE": "traces.duckdb"}])
def test_the_start_up_file_imports_nothing_where_no_variable_asks(
    variables: dict[str, str],
) -> None:
    line = START_UP_FILE.read_text().strip()
    script = (
        "import os, sys; before = set(sys.modules)\n"
        f"{line}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    environment = {"PYTHONPATH": str(START_UP_FILE.parent), **variables}
    # -S: no modules that other .pth files import
    process = finish(sys.executable, "-S", "-c", script, env=environment, check=True)
    assert process.stdout.split() == []


def test_the_start_up_file_tests_the_same_variables_as_the_module_that_it_starts() -> None:
    named = re.findall(r'"((?:LIGHTNING|OTEL)_\w+)"', START_UP_FILE.read_text())
    assert sorted(named) == sorted(start.ASKING)


def test_our_own_commands_are_not_traced(plain_bin: Path, tmp_path: Path) -> None:
    command = tmp_path / "lightning-ingest"
    command.write_text(LOADED)
    process = finish(plain_bin / "python", command, env={"OTEL_SERVICE_NAME": "desk"}, check=True)
    assert "opentelemetry" not in process.stdout


def test_openai_is_not_loaded_into_an_agent_that_does_not_use_it(
    agent: Any, plain_bin: Path
) -> None:
    script = "import sys; print('openai' in sys.modules)"
    assert agent.run(script, under=(), bin_folder=plain_bin) == "False\n"


@pytest.mark.slow
def test_the_beta_types_of_openai_are_not_loaded_for_an_agent_that_does_not_use_them(
    agent: Any, plain_bin: Path
) -> None:
    script = AGENT + "import sys; print('openai.types.beta' in sys.modules)"
    assert agent.run(script, under=(), bin_folder=plain_bin) == "Hello\nFalse\n"
    assert len(agent.sink.llm_spans()) == 1


@pytest.mark.slow
def test_the_type_that_stood_in_for_a_beta_type_gives_way_to_it(
    agent: Any, plain_bin: Path
) -> None:
    script = AGENT + (
        "from openai.types.beta.threads.run import Run\n"
        "from opentelemetry.instrumentation.openai.v1 import assistant_wrappers\n"
        "print(assistant_wrappers.Run is Run, hasattr(Run, 'model_fields'))\n"
    )
    assert agent.run(script, under=(), bin_folder=plain_bin) == "Hello\nTrue True\n"


@pytest.mark.slow
def test_an_agent_that_starts_the_openai_instrumentation_itself_is_traced_once(
    agent: Any, plain_bin: Path
) -> None:
    script = (
        "from opentelemetry.instrumentation.openai import OpenAIInstrumentor\n"
        "OpenAIInstrumentor().instrument()\n" + AGENT
    )
    assert agent.run(script, under=(), bin_folder=plain_bin) == "Hello\n"
    assert len(agent.sink.llm_spans()) == 1


def test_an_endpoint_at_the_port_for_http_needs_no_protocol_beside_it() -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}
    start.set_defaults(variables)
    assert variables["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
    start.set_defaults(variables)
    assert "OTEL_EXPORTER_OTLP_PROTOCOL" not in variables


@pytest.mark.parametrize(
    "asked",
    [{"OTEL_METRICS_EXPORTER": "otlp"}, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m"}],
)
def test_metrics_are_exported_only_if_asked_for(asked: dict[str, str]) -> None:
    variables: dict[str, str] = {}
    start.set_defaults(variables)
    assert variables["OTEL_METRICS_EXPORTER"] == "none"
    start.set_defaults(asked)
    assert asked.get("OTEL_METRICS_EXPORTER") != "none"


@pytest.mark.parametrize(
    ("endpoint", "is_http"),
    [
        ("http://collector:4318", True),
        ("http://collector:4318/v1/traces", True),
        ("https://vendor.example/otlp/", True),
        ("https://vendor.example:4317/", False),
        ("collector:4317", False),
    ],
)
@pytest.mark.parametrize("signal", ["", "TRACES_", "LOGS_"])
def test_an_endpoint_with_a_path_speaks_http(endpoint: str, signal: str, *, is_http: bool) -> None:
    variables = {f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT": endpoint}
    start.set_defaults(variables)
    assert (f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" in variables) == is_http


@pytest.mark.parametrize(
    ("given", "used"),
    [("http", "http/protobuf"), ("HTTP/json", "http/protobuf"), ("gRPC", "grpc"), ("tcp", "grpc")],
)
def test_a_protocol_that_the_sdk_refuses_is_replaced_and_named_once(
    given: str, used: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": given}
    start.set_defaults(variables)
    start.set_defaults(variables)  # the launcher calls it again
    assert variables["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == used
    assert capsys.readouterr().err == (
        f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL={given} is unknown to OpenTelemetry's Python SDK, so "
        f"{used} is used. Known: grpc, http/protobuf.\n"
    )


@pytest.mark.parametrize("given", ["grpc", "http/protobuf", " grpc ", ""])
def test_a_protocol_that_the_sdk_knows_stays_as_it_is(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": given}
    start.set_defaults(variables)
    assert variables["OTEL_EXPORTER_OTLP_PROTOCOL"] == given
    assert capsys.readouterr().err == ""
