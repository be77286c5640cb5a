"""The files with the output of a process: only their ends are read, because they may be large."""

from pathlib import Path


def tail(file: Path, characters: int) -> str:
    """Return the last characters of a file; a character that is cut or not UTF-8 is replaced."""
    try:
        with file.open("rb") as opened:
            if not (size := opened.seek(0, 2)):
                return ""
            # A character has at most 4 bytes in UTF-8.
            opened.seek(max(0, size - 4 * characters))
            return opened.read().decode("utf-8", "replace")[-characters:].replace("\0", "\ufffd")
    except OSError:
        return ""


def is_longer(file: Path, characters: int) -> bool:
    """Return whether a file has more characters than `tail` returns."""
    try:
        size = file.stat().st_size
    except OSError:
        return False
    # A character has 1 to 4 bytes in UTF-8, so most files need not be read.
    return size > characters and (size > 4 * characters or len(tail(file, size)) > characters)


def end_on_one_line(file: Path, characters: int = 600) -> str:
    """Return the end of a file as one line of text."""
    return " ".join(tail(file, characters).split())
