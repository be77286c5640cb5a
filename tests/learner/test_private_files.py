"""What we make beside a store has texts of it, so only its user may read it, as the store."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.prompts.search.record import opened_search
from otel_lightning.learner.rollout_runner import Job, run_agent
from otel_lightning.learner.score.judges.answers import Answer
from otel_lightning.learner.score.judges.cache import AnswerCache

OTHERS = 0o077


@pytest.fixture(autouse=True)
def _others_may_read_new_files() -> Iterator[None]:
    former = os.umask(0o022)
    yield
    os.umask(former)


def open_to_others(store: Path) -> list[str]:
    """What is beside a store and may be read or entered by others, and the store itself."""
    beside = [one for one in store.parent.iterdir() if one.name.startswith(store.name)]
    assert len(beside) > 1
    return [one.name for one in beside if one.stat().st_mode & OTHERS]


def test_a_run_keeps_its_journal_private(tmp_path: Path) -> None:
    store, tasks = tmp_path / "t.duckdb", tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "question": "secret"}\n')
    assert run_agent(store, Job(tasks, ["cat"])).statuses == {"ok": 1}
    assert open_to_others(store) == []
    (journal,) = tmp_path.glob("t.duckdb.runs/*/journal.jsonl")
    assert journal.parent.stat().st_mode & OTHERS == 0


def test_a_search_is_private(tmp_path: Path) -> None:
    store, flags = tmp_path / "t.duckdb", tmp_path / "flags.json"
    flag = {"state": "ENABLED", "variants": {"a": "Be brief."}, "defaultVariant": "a"}
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    open_store(store).close()
    with opened_search(store, tmp_path / "t.duckdb.searches", flags, "prompt", {}) as record:
        assert record.folder
        assert record.folder.stat().st_mode & OTHERS == 0
    assert open_to_others(store) == []


def test_judges_answers_are_private_unless_their_file_was_opened_to_others(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb.judge"
    with closing(AnswerCache(path)) as cache:
        cache.put("key", Answer("secret", 1, 1))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with closing(AnswerCache(path)) as cache:
        assert cache.get(["key"]) == {"key": Answer("secret", 1, 1)}
    assert path.stat().st_mode & 0o777 == 0o640
