"""Every line of the log says when it was written and how serious it is."""

import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import LIMIT_S, background, cli

from otel_lightning.collector.serve.logs import JsonLines, TextLines

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def record(*, failed: bool) -> logging.LogRecord:
    try:
        int("a")
    except ValueError:
        error = sys.exc_info() if failed else None
    return logging.LogRecord("some.logger", logging.ERROR, "", 1, "it is %s", ("bad",), error)


def test_a_line_of_text_begins_with_time_level_and_logger() -> None:
    assert re.fullmatch(
        TIME + " ERROR some.logger: it is bad", TextLines().format(record(failed=False))
    )


def test_a_json_line_is_one_line_also_of_an_exception() -> None:
    line = JsonLines().format(record(failed=True))
    assert "\n" not in line
    read = json.loads(line)
    assert re.fullmatch(TIME, read["time"])
    assert (read["level"], read["logger"], read["message"]) == ("ERROR", "some.logger", "it is bad")
    assert "ValueError: invalid" in read["exception"]


def test_in_json_format_everything_that_is_said_is_json(tmp_path: Path) -> None:
    addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    command = [sys.executable, "-m", "otel_lightning.collector", "--store", str(tmp_path / "t")]
    with background(
        *(*command, *addresses, "--log-format", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr
        first = json.loads(running.stderr.readline())
        running.send_signal(signal.SIGTERM)
        out, rest = running.communicate(timeout=LIMIT_S)
    messages = [first["message"], *(json.loads(line)["message"] for line in rest.splitlines())]
    assert messages[0].startswith("Ready: ")
    assert messages[-1].startswith("Stopped; ")
    assert out == ""


def test_in_json_format_the_reason_why_it_cannot_start_is_json(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("no DuckDB file")
    result = cli("serve", "--store", str(tmp_path / "t"), "--log-format", "json")
    assert result.returncode == 1
    assert json.loads(result.stderr)["level"] == "CRITICAL"


@pytest.mark.parametrize("arguments", [[], ["sql", "SELECT 1"]])
def test_on_windows_a_warning_at_start_says_that_it_is_not_supported(arguments: list[str]) -> None:
    script = "import sys; sys.platform = 'win32'; import otel_lightning.collector.__main__ as m"
    command = [sys.executable, "-c", f"{script}; m.main()", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert process.returncode == 1
    assert "does not run on Windows" in process.stderr
    assert "WSL" in process.stderr
