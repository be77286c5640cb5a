"""Read text that a user gives: a file or standard input, which may not be UTF-8."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text, without the byte order mark that programs on Windows put first.

    Raises:
        OSError: If the file cannot be read, or is not UTF-8.
    """
    with _utf8(f"'{path}'"):
        return path.read_text(encoding="utf-8-sig")


def read_stdin() -> str:
    """Read standard input to its end.

    Raises:
        OSError: If it is not UTF-8.
    """
    with _utf8("Standard input"):
        # The text layer of some locales turns wrong bytes into characters that nothing can store.
        return sys.stdin.buffer.read().decode()


@contextmanager
def _utf8(source: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise OSError(f"{source} is not UTF-8 text ({error}). Save it as UTF-8.") from error
