"""A file is replaced as a whole or not at all."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.running import LIMIT_S, background

from otel_lightning.collector.files.atomic import (
    folder_for,
    make_folder_of,
    new_folder,
    replaced,
    wanted_file,
)
from otel_lightning.collector.files.reason import named_reason

FILLS = """
import sys
from pathlib import Path
from otel_lightning.collector.files.atomic import new_folder

with new_folder(Path(sys.argv[1])) as folder:
    (folder / "weights").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_file_is_replaced_only_if_the_block_ends_well(tmp_path: Path) -> None:
    file = tmp_path / "flags.json"
    file.write_text("old")
    with suppress(RuntimeError), replaced(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    with replaced(file) as temporary:
        temporary.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["flags.json"]


def test_a_replaced_file_keeps_its_mode_and_a_new_one_gets_the_mode_asked_for(
    tmp_path: Path,
) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "secret"
    shared.write_text("old")
    shared.chmod(0o664)
    for file, mode in ((shared, None), (secret, 0o600)):
        with replaced(file, mode) as temporary:
            temporary.write_text("new")
    assert [file.stat().st_mode & 0o777 for file in (shared, secret)] == [0o664, 0o600]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replaced(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "one"
    with suppress(RuntimeError), new_folder(folder) as temporary:
        (temporary / "weights").write_text("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with new_folder(folder) as temporary:
        (temporary / "weights").write_text("1")
        assert not folder.exists()
    assert (folder / "weights").read_text() == "1"


def test_what_a_killed_process_left_is_removed_but_not_what_a_living_one_fills(
    tmp_path: Path,
) -> None:
    folder, other = tmp_path / "one", tmp_path / "one-two"
    kept = tmp_path / ".one-12345678"  # of the user
    kept.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        background(sys.executable, "-c", FILLS, folder, **pipes) as process,
        background(sys.executable, "-c", FILLS, other, **pipes) as living,
    ):
        left, filled = Path(process.stdout.readline().strip()), living.stdout.readline().strip()
        with pytest.raises(BlockingIOError), new_folder(folder):
            pass
        process.kill()
        process.wait(LIMIT_S)
        assert (left / "weights").exists()
        with new_folder(folder):
            assert not left.exists()
        assert sorted(tmp_path.iterdir()) == sorted([kept, folder, Path(filled)])
        assert living.poll() is None


WRITES = """
import sys
from pathlib import Path
from otel_lightning.collector.files.atomic import wanted_file

with wanted_file(Path(sys.argv[1])) as file:
    file.write_text("half")
    print(file, flush=True)
    sys.stdin.read()
"""


def test_a_file_that_a_killed_process_left_is_removed_but_not_what_a_living_one_writes(
    tmp_path: Path,
) -> None:
    wanted = tmp_path / "rows.jsonl"
    kept = [tmp_path / ".rows.jsonl-notes.jsonl", tmp_path / ".other.jsonl-12345678.jsonl"]
    for path in kept:
        path.touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        background(sys.executable, "-c", WRITES, wanted, **pipes) as process,
        background(sys.executable, "-c", WRITES, wanted, **pipes) as living,
    ):
        left, written = (Path(one.stdout.readline().strip()) for one in (process, living))
        process.kill()
        process.wait(LIMIT_S)
        assert left.read_text() == "half"
        with wanted_file(wanted) as temporary:
            temporary.write_text("whole")
        assert sorted(tmp_path.iterdir()) == sorted([*kept, wanted, written])
        assert (wanted.read_text(), written.read_text()) == ("whole", "half")
        assert living.poll() is None


def test_folder_that_cannot_be_made_is_named_with_the_reason_and_the_next_step(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes").touch()
    wanted = tmp_path / "notes" / "new" / "report.html"
    with pytest.raises(OSError, match=r"report.html' cannot be written, .*Choose another") as told:
        make_folder_of(wanted)
    assert f"'{tmp_path / 'notes'}' is no folder" in named_reason(told.value)


def test_folders_are_made_for_a_file_and_removed_if_it_is_not_written(tmp_path: Path) -> None:
    wanted = tmp_path / "mine" / "new" / "deep" / "rows.jsonl"
    (tmp_path / "mine").mkdir()
    with suppress(RuntimeError), folder_for(wanted), replaced(wanted) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"], "a folder of the user stays"
    with suppress(RuntimeError), folder_for(wanted):
        (wanted.parent.parent / "notes").touch()
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "new", "notes"]
    with folder_for(wanted):
        wanted.touch()
    assert wanted.exists()


def test_file_that_cannot_be_made_is_named_and_not_its_temporary_file(tmp_path: Path) -> None:
    wanted = tmp_path / "missing" / "report.html"
    with pytest.raises(FileNotFoundError) as told, replaced(wanted):
        pass
    assert named_reason(told.value) == f"'{wanted}': No such file or directory"
