"""The collector without pandas, which its extra does not bring, over times with odd nanoseconds.

PyArrow converts such a time through pandas: a command that turns one into a Python value works in
the developers' environment and fails at the user's.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from support.desk_store import START_NS, desk_trace, judgement
from support.otlp_client import JSON, send
from support.running import cli, eventually, finish, running

from otel_lightning.collector.receive.feedback import read_feedback

TESTS = Path(__file__).parents[1]
ROLLOUTS = 4
NESTED = (
    "SELECT events, links, [start_time] AS list, {'at': end_time} AS struct,"
    " MAP {'at': received_at} AS map, MAP {start_time: 1} AS keys,"
    " array_value(start_time) AS pair, end_time - start_time AS took,"
    " '12:00:00.123456789'::TIME_NS AS clock"
    " FROM spans WHERE len(events) > 0 LIMIT 3"
)
COMMANDS = """
import sys
from pathlib import Path
from urllib.parse import quote
from click.testing import CliRunner
from otel_lightning.collector.cli import main
from otel_lightning.collector.store import open_store
from support.page_source import DirectSource

def run(*words, exit_code=0):
    done = CliRunner().invoke(main, [*words], catch_exceptions=False)
    assert done.exit_code == exit_code, (words, done.output)
    return done.output

nested = sys.argv[1]
run("load", "traces.otlp.pb", "logs.otlp.pb")
run("load", "repeated.otlp.pb")
run("derive", "--rebuild")
Path("prices.csv").write_text("model,input,output\\nmodel-7,1,2\\n")
run("prices", "prices.csv")
assert "such as" in run("doctor", exit_code=1)
run("attach")
assert "rollout-0001" in run("show", "rollout-0001")
with open_store(Path("traces.duckdb"), read_only=True) as store:
    tables = store.query("SELECT table_name FROM information_schema.tables").column(0).to_pylist()
    asked = [*(f'FROM "{name}" LIMIT 3' for name in tables), nested]
    pages = DirectSource(store)
    rollout = "/ui/rollouts/rollout-0001"
    paths = ["/ui", "/ui/rollouts", rollout, f"{rollout}/steps/0", "/ui/rewards", "/ui/arms",
             "/ui/tasks", "/ui/data", "/ui/runs"]
    paths += [f"/ui/sql{form}?q={quote(one)}" for one in asked for form in ("", ".csv", ".parquet")]
    for path in paths:
        answer = pages.get(path)
        assert answer.status == 200 and b"pandas" not in answer.body, (path, answer.body)
assert {"spans", "logs", "llm_calls", "rewards", "stale"} <= {*tables}
for one in asked:
    for form in ("table", "json", "csv"):
        run("sql", one, "--format", form)
run("backup", "copy.duckdb")
run("copy", "traces.duckdb", "other.duckdb")
run("forget", "--rollout", "rollout-0002")
assert "1 span not stored" in run("check", "--deep", exit_code=1)
"""


@pytest.fixture
def without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide pandas from the programs that a test starts, and from their children."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pandas.py").write_text("raise ModuleNotFoundError(name='pandas')\n")
    monkeypatch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{TESTS}")
    return tmp_path


def odd_traces() -> list[bytes]:
    """Return requests of which no time is a whole number of microseconds."""
    bodies = []
    for number in range(ROLLOUTS):
        request = desk_trace(number).request
        for span in request.resource_spans[0].scope_spans[0].spans:
            span.start_time_unix_nano += 1
            span.end_time_unix_nano += 7
            for event in span.events:
                event.time_unix_nano += 3
        bodies.append(request.SerializeToString())
    return bodies


def other_content() -> bytes:
    """Return a span with the ids of another one, with an event of its own."""
    request = desk_trace(0).request
    spans = request.resource_spans[0].scope_spans[0].spans
    del spans[1:]
    spans[0].name = "another run"
    spans[0].start_time_unix_nano += 5
    spans[0].events.add(name="event", time_unix_nano=START_NS + 9)
    return request.SerializeToString()


def judged() -> bytes:
    """Return judgements of all rollouts."""
    items = json.dumps([judgement(number) for number in range(ROLLOUTS)]).encode()
    return read_feedback(items, START_NS + 11).request.SerializeToString()


@pytest.mark.slow
def test_every_command_and_page_works(without_pandas: Path) -> None:
    (without_pandas / "traces.otlp.pb").write_bytes(b"".join(odd_traces()))
    (without_pandas / "repeated.otlp.pb").write_bytes(other_content())
    (without_pandas / "logs.otlp.pb").write_bytes(judged())
    finish(sys.executable, "-c", COMMANDS, NESTED, cwd=without_pandas, check=True)


@pytest.mark.slow
def test_the_server_stores_derives_and_answers(without_pandas: Path) -> None:
    with running(without_pandas / "traces.duckdb") as ingester:
        for body in (*odd_traces(), other_content()):
            assert send(ingester.http, body).status == 200
        item = {"id": "1", "rollout_id": "rollout-0001", "value": 1}
        judgement = json.dumps(item).encode()
        feedback = send(ingester.http, judgement, path="/v1/feedback", Content_Type=JSON)
        assert feedback.status == 200

        def answer(select: str) -> list[str]:
            result = cli("sql", select, "--store", str(ingester.store), "--format", "csv")
            assert result.returncode == 0, result.stderr
            return result.stdout.splitlines()

        eventually(lambda: answer("SELECT count(*) FROM rejected")[1:] == ["1"])
        eventually(lambda: answer("SELECT sum(value) FROM rewards")[1:] == ["1.0"])
        assert len(answer(NESTED)) == 1 + 3
        kept = json.loads(Path(answer("SELECT file FROM rejected")[1]).read_text())
        assert kept["events"][0]["time"].endswith("09")
