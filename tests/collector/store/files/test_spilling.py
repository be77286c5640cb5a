"""What DuckDB spills to disk for a store."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pytest
from support.running import LIMIT_S, background, running

from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.files.spilling import erase_spilled

SORTED = "SELECT md5(range::VARCHAR) AS text FROM range(2_000_000) ORDER BY text"
MEMORY = 60_000_000  # less than the texts take
READER = """
import sys
from otel_lightning.collector.store import open_store
with open_store(sys.argv[1], read_only=True) as store:
    store.threads = 1
    store.limit(int(sys.argv[2]))
    rows = store.stream(sys.argv[3], 1000)
    count = next(rows).num_rows
    print("spills", flush=True)
    input()
    print(count + sum(batch.num_rows for batch in rows))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.duckdb"
    open_store(path).close()
    return path


@pytest.fixture
def umask() -> Iterator[None]:
    former = os.umask(0o022)
    yield
    os.umask(former)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("read_only", [True, False])
def test_nobody_else_can_read_what_a_command_spills(path: Path, *, read_only: bool) -> None:
    common = Path(f"{path}.tmp")
    with open_store(path, read_only=read_only) as store:
        store.threads = 1
        store.limit(MEMORY)
        next(store.stream(SORTED, 1000))
        (own,) = common.iterdir()
        assert list(own.iterdir())
        assert [one.stat().st_mode & 0o777 for one in (common, own)] == [0o700, 0o700]
    assert not common.exists()


@pytest.mark.usefixtures("umask")
def test_a_folder_that_a_former_version_left_open_to_others_hides_what_is_spilled_now(
    path: Path,
) -> None:
    Path(f"{path}.tmp").mkdir()
    with open_store(path, read_only=True):
        (own,) = Path(f"{path}.tmp").iterdir()
        assert own.stat().st_mode & 0o777 == 0o700


def test_two_processes_that_read_one_store_spill_apart(path: Path) -> None:
    command = (sys.executable, "-c", READER, str(path), str(MEMORY), SORTED)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with background(*command, **pipes) as one, background(*command, **pipes) as other:
        assert [process.stdout.readline() for process in (one, other)] == ["spills\n"] * 2
        told = [process.communicate("\n", timeout=LIMIT_S)[0] for process in (one, other)]
    assert told == ["2000000\n"] * 2
    assert not Path(f"{path}.tmp").exists()


def test_the_folder_stays_as_long_as_a_connection_of_the_process_is_open(path: Path) -> None:
    with open_store(path, read_only=True) as first:
        with open_store(path, read_only=True), first.cursor():
            pass
        first.threads = 1
        first.limit(MEMORY)
        assert sum(batch.num_rows for batch in first.stream(SORTED, 100_000)) == 2_000_000


def test_a_client_of_a_served_store_spills_beside_the_store(path: Path) -> None:
    setting = "SELECT current_setting('temp_directory') AS folder, 1 IN (FROM {rows}) AS found"
    with running(path), open_store(path) as one, open_store(path) as other:
        folders = [
            Path(store.pick(pa.table({"one": [1]}), setting)["folder"][0].as_py())
            for store in (one, other)
        ]
        assert {folder.parent for folder in folders} == {Path(f"{path}.tmp")}
        assert len({*folders}) == 2
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 2


def test_what_a_killed_process_spilled_is_erased_and_the_own_folder_stays(path: Path) -> None:
    left = Path(f"{path}.tmp") / "4711-abc" / "duckdb_temp_storage_DEFAULT-0.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"secret")
    with open_store(path):
        erase_spilled(path)
        assert len(list(Path(f"{path}.tmp").iterdir())) == 1
    assert not Path(f"{path}.tmp").exists()


def test_other_processes_may_remove_their_folders_while_what_is_spilled_is_counted(
    path: Path,
) -> None:
    with open_store(path) as store, ThreadPoolExecutor() as others:
        store.limit(MEMORY)
        going = [others.submit(make_and_remove, Path(f"{path}.tmp"), 500) for _ in range(2)]
        while not all(one.done() for one in going):
            store.release_memory()


def make_and_remove(common: Path, times: int) -> None:
    for _ in range(times):
        Path(mkdtemp(dir=common)).rmdir()
