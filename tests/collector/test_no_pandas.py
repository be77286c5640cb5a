"""Our own processes do not load pandas, which pyarrow would only to look at it."""

import importlib.util
import sys
from pathlib import Path

from support.running import finish
from support.stores import DATA

RECORDING = DATA / "agentops" / "tool.otlp.pb"


def test_no_command_loads_pandas_where_it_is_installed(tmp_path: Path) -> None:
    assert importlib.util.find_spec("pandas"), "it comes with the learner"
    command = [sys.executable, "-X", "importtime", "-m", "otel_lightning.collector"]
    store = ("--store", str(tmp_path / "t.duckdb"))
    for words in (("load", *store, str(RECORDING)), ("check", *store), ("doctor", *store)):
        imported = finish(*command, *words).stderr
        assert "pyarrow" in imported
        assert "pandas.core" not in imported, words


def test_pandas_stays_there_for_a_process_that_is_not_ours(tmp_path: Path) -> None:
    ours = "import pandas; from otel_lightning.collector.store import open_store"
    asked = f"open_store({str(tmp_path / 't.duckdb')!r}).query('SELECT 1 AS one').to_pandas()"
    assert finish(sys.executable, "-c", f"{ours}; print({asked})").stdout.split() == [
        "one",
        "0",
        "1",
    ]
