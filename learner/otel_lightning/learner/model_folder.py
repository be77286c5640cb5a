"""A fingerprint of a model's folder: a verdict on a model holds for its files as they were."""

from hashlib import file_digest, sha256
from pathlib import Path

DESCRIPTIVE = frozenset({"README.md", "gate.json"})
"""Files that say something about a model and are no part of it."""


def fingerprint(folder: Path) -> str:
    """Hash the names and the contents of all files of a model or an adapter.

    Hidden files, the model card and the gate's verdict do not count.

    Args:
        folder: Folder of the model, or a link that leads to it.

    Raises:
        OSError: If a file cannot be read.
    """
    digest = sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if is_hidden or name.as_posix() in DESCRIPTIVE or not path.is_file():
            continue
        with path.open("rb") as file:
            # The digest has a fixed length, so no two folders give the same text.
            digest.update(f"{name.as_posix()}\0{file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()
