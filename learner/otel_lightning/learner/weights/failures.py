"""Errors of libraries and machines, as one sentence that names the option to change."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError

if TYPE_CHECKING:
    from otel_lightning.learner.weights.settings import Training

MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
DISK = (
    "no space left",
    "file too large",
    "disk quota exceeded",
    "failed writing file",  # torch.save does not say why
    "unexpected pos",  # the same, where torch.save was writing a part of the file
)
FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


@contextmanager
def explained(checkpoints: object, given: "Training | None" = None) -> Iterator[None]:
    """Turn running out of memory or of disk, and what options caused, into one sentence.

    Args:
        checkpoints: Folder of the checkpoints, named where the disk is full.
        given: The user's options, if errors of TRL's arguments and of trackers shall be explained.

    Raises:
        DataError: Instead of the library's error.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise DataError(
                "Training ran out of memory. Lower --batch-size, or keep it and raise "
                "--accumulate; or lower --max-length, add --checkpointing, or train an adapter "
                "with --lora 16."
            ) from error
        is_full = isinstance(error, OSError) and error.errno in FULL
        if is_full or any(words in str(error).lower() for words in DISK):
            raise DataError(
                "The disk is full, or a file became too large. Free space and continue with "
                f"--resume: complete checkpoints are kept in '{checkpoints}'. --save-every 0 "
                "writes none, --lora writes small ones."
            ) from error
        if given and (cause := _cause(error, given)):
            raise DataError(f"{cause}: {error}") from error
        raise


def _cause(error: Exception, given: "Training") -> str | None:
    """Name the option that an error comes from, if one can be told."""
    package = type(error).__module__.partition(".")[0]
    if package in given.report_to:
        return f"--report-to {package} failed"
    if isinstance(error, TypeError | ValueError):
        for name, value in given.trl.items():
            if name in str(error) or (isinstance(value, str) and value in str(error)):
                return f"TRL refuses {name} = {value!r} of the table [trl]"
    return None


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory of the CPU or the GPU ran out."""
    # torch raises RuntimeError with these words; there is no class for memory of the CPU.
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in MEMORY)
