"""Errors of libraries and machines, as one sentence that names the option to change."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.trainer.checkpoints import last_checkpoint

if TYPE_CHECKING:
    from otel_lightning.learner.weights.settings import Training

MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
)
OUT_OF_MEMORY = (
    "Training ran out of memory. Lower --batch-size, or keep it and raise --accumulate; or lower "
    "--max-length, add --checkpointing, or train an adapter with --lora 16."
)
DISK = (
    "no space left",
    "file too large",
    "disk quota exceeded",
    "failed writing file",  # torch.save does not say why
    "unexpected pos",  # the same, where torch.save was writing a part of the file
)
FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


@contextmanager
def explained(checkpoints: Path, training: "Training") -> Iterator[None]:
    """Turn running out of memory or of disk, and what options caused, into one sentence.

    Args:
        checkpoints: Folder of the checkpoints; a complete one there can be resumed from.
        training: The user's options.

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
                OUT_OF_MEMORY + _resume(checkpoints, "--accumulate or --checkpointing")
            ) from error
        is_full = isinstance(error, OSError) and error.errno in FULL
        if is_full or any(words in str(error).lower() for words in DISK):
            first, *_ = str(error).splitlines()
            raise DataError(
                f"The disk is full, or a file became too large ({first.rstrip('.')}). Free space "
                "and give the command again; --save-every 0 writes no checkpoints, --lora small "
                f"ones.{_resume(checkpoints)}"
            ) from error
        if cause := _cause(error, training):
            raise DataError(f"{cause}: {error}") from error
        raise


def _resume(checkpoints: Path, changeable: str = "") -> str:
    """Name the checkpoint to continue from, and options that may be other ones then."""
    try:
        checkpoint = last_checkpoint(checkpoints)
    except OSError:  # without memory not even a folder can be listed
        return ""
    changed = f", also with another {changeable}" if changeable else ""
    return f" Continue from '{checkpoint}' with --resume{changed}." if checkpoint else ""


def _cause(error: Exception, training: "Training") -> str | None:
    """Name the option that caused an error, if it can be determined."""
    package = type(error).__module__.partition(".")[0]
    if package in training.report_to:
        return f"--report-to {package} failed"
    if isinstance(error, TypeError | ValueError):
        text = str(error)
        for name, value in training.trl.items():
            if name in text or (isinstance(value, str) and value in text):
                return f"TRL refuses {name} = {value!r} of the table [trl]"
        for name, value in training.algorithm.items():
            # Only by the value: names such as `loss` are in other errors as well.
            if isinstance(value, str) and value in text:
                return f"TRL refuses the setting {name} = {value!r}"
    return None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory of the CPU or the GPU ran out."""
    # torch raises RuntimeError with these words; there is no class for memory of the CPU.
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in MEMORY)
