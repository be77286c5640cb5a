"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm  # type: ignore[import-untyped]

QUIET_SECONDS = 2
LINE_SECONDS = 10

T = TypeVar("T")


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """Pass items on and show how far they are; work shorter than two seconds shows nothing."""
    if sys.stderr.isatty():
        return iter(tqdm(items, desc=label, total=total, delay=QUIET_SECONDS))
    return _with_lines(items, total, label)


def _with_lines(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    due = time.monotonic() + QUIET_SECONDS
    for number, item in enumerate(items, start=1):
        yield item
        if time.monotonic() >= due:
            print(f"{label}: {number} of {total}", file=sys.stderr, flush=True)
            due = time.monotonic() + LINE_SECONDS
