"""How this process takes and keeps memory."""

import ctypes
from contextlib import suppress

import pyarrow as pa

M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -8, -3, -1  # of glibc's malloc.h
LARGE_BYTES, FREE_BYTES = 32 * 1024 * 1024, 16 * 1024 * 1024


def share_memory() -> None:
    """Let all threads use one heap, Arrow too: else each keeps the most that it ever had in pieces.

    What is freed is soon used again, so some of it stays: new pages cost a tenth of all CPU.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError):  # not glibc
        malloc = ctypes.CDLL(None)
        malloc.mallopt(M_ARENA_MAX, 1)
        malloc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        malloc.mallopt(M_TRIM_THRESHOLD, FREE_BYTES)
