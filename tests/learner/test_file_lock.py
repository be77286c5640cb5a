"""Locks say who holds them, and each other error by its cause."""

import os
from pathlib import Path

import pytest

from otel_lightning.learner import DataError
from otel_lightning.learner.file_lock import locked_alone, opened_lock
from otel_lightning.learner.loop.rounds import run_loop

LOOP = """
[learn]
what = ["policy"]
[run]
tasks = "tasks.jsonl"
command = ["x"]
[policy]
key = "k"
flags = "flags.json"
"""


def test_only_one_has_a_lock_and_its_folders_are_private(tmp_path: Path) -> None:
    place = tmp_path / "t.runs" / "one" / "lock"
    with opened_lock(place) as first, opened_lock(place) as second:
        assert (locked_alone(first), locked_alone(second)) == (True, False)
        first.close()
        assert locked_alone(second)
    modes = [one.stat().st_mode & 0o777 for one in (place.parent, place.parent.parent)]
    assert modes == [0o700, 0o700]


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "t.runs").mkdir()
    (tmp_path / "t.runs").chmod(0o755)
    with opened_lock(tmp_path / "t.runs" / "lock"):
        pass
    assert (tmp_path / "t.runs").stat().st_mode & 0o777 == 0o755


def test_a_file_without_locks_is_not_told_as_one_that_another_process_has(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    # Linux locks no file that was opened for its path alone, as some file systems lock none.
    with (
        os.fdopen(os.open(tmp_path / "lock", os.O_PATH), "rb") as file,
        pytest.raises(DataError, match=r"cannot be locked .*Put the store on a disk"),
    ):
        locked_alone(file)


def test_a_loop_says_whether_it_runs_already_or_its_lock_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "desk.toml").write_text(LOOP)
    store = tmp_path / "t.duckdb"
    with opened_lock(tmp_path / "t.duckdb.loops" / "desk" / "lock") as file:
        assert locked_alone(file)
        with pytest.raises(DataError, match="Loop 'desk' runs already, in another process"):
            run_loop(tmp_path / "desk.toml", store)
    other = tmp_path / "other.duckdb"
    (tmp_path / "other.duckdb.loops").touch()
    with pytest.raises(DataError, match=r"other\.duckdb\.loops' must be a folder that the user"):
        run_loop(tmp_path / "desk.toml", other)
