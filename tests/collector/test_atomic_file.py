"""A file is replaced as a whole or not at all."""

from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.atomic_file import new_folder, replaced


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
    assert not list(folder.parent.iterdir())
    with new_folder(folder) as temporary:
        (temporary / "weights").write_text("1")
        assert not folder.exists()
    assert (folder / "weights").read_text() == "1"
