"""`lightning-ingest sql`: a prompt with history and completion, a file, a pipe, and timing."""

import stat
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from support.made_rollouts import deliver, make
from support.running import cli

from otel_lightning.collector.query.prompt import SqlCompleter, history_file, prompt
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.print_rows import Layout
from otel_lightning.collector.store.tables import INTERNAL

COLUMNS = {"rollouts": ["rollout_id", "task_id"], "rewards": ["value"], "llm_calls": ["step"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(store, tmp_path, make())
    return tmp_path / "t.duckdb"


def typed(path: Path, text: str) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        prompt(path, Layout(width=100))


def completed(text: str) -> list[str]:
    found = SqlCompleter(COLUMNS).get_completions(Document(text), CompleteEvent())
    return [one.text for one in found]


def test_statements_are_answered_and_errors_do_not_end_the_prompt(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "state"))
    typed(path, "SELECT rollout_id\rFROM rollouts;\rSELECT nothing;\rDELETE FROM spans;\r.quit\r")
    printed = capsys.readouterr()
    assert "ticket-77" in printed.out
    assert "1 row in 0." in printed.err
    assert 'Referenced column "nothing" was not found' in printed.err
    assert "Only one SELECT statement at a time" in printed.err
    file = history_file()
    assert "+FROM rollouts;" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_commands_with_a_dot_list_tables_and_columns(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "state"))
    typed(path, ".tables\r.columns rollouts\r.columns none\r.timing\r.what\r\x04")
    lines = capsys.readouterr().out.splitlines()
    assert {"llm_calls", "rollout_rows", "final_reward", "No table 'none'.", "Timing is off."} <= {
        *lines
    }
    assert "leave, as does Ctrl+D" in lines[-1]
    assert not INTERNAL & {*lines}


def test_completion_knows_tables_columns_and_keywords() -> None:
    assert completed("FROM r") == ["rollouts", "rewards"]
    assert completed("FROM rollouts WHERE ro") == ["rollout_id", "rollouts"]
    assert completed("SELECT rollouts.t") == ["task_id"]
    assert completed("sel") == ["SELECT"]
    assert completed(".columns l") == ["llm_calls"]


@pytest.mark.slow
def test_a_query_comes_from_a_file_or_a_pipe_and_its_time_goes_to_stderr(path: Path) -> None:
    query = "SELECT count(*) AS n FROM llm_calls -- a comment;\n"
    (path.parent / "q.sql").write_text(query)
    options = ("--store", str(path), "--format", "csv", "--timing")
    from_file = cli("sql", "--file", str(path.parent / "q.sql"), *options)
    from_pipe = cli("sql", *options, stdin=query)
    for told in (from_file, from_pipe):
        assert (told.returncode, told.stdout) == (0, "n\n2\n")
        assert "1 row in " in told.stderr
    nothing = cli("sql", "--store", str(path))
    assert (nothing.returncode, "There is no query" in nothing.stderr) == (2, True)
    both = cli("sql", query, "--file", str(path.parent / "q.sql"), *options)
    assert (both.returncode, "not both" in both.stderr) == (2, True)


def test_an_error_that_quotes_a_stored_value_has_no_control_characters(path: Path) -> None:
    result = cli("sql", "SELECT ('a' || chr(27) || '[2J')::INTEGER", "--store", str(path))
    assert result.returncode == 1
    assert "\x1b" not in result.stderr
    assert "\\x1b[2J" in result.stderr
