"""Errors of libraries and machines, as one sentence that names the option to change."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from otel_lightning.learner.errors import DataError

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
def explained(checkpoints: object, trl: Mapping[str, object] | None = None) -> Iterator[None]:
    """Turn running out of memory or of disk, and wrong arguments of TRL, into one sentence.

    Args:
        checkpoints: Folder of the checkpoints, named where the disk is full.
        trl: Arguments of TRL that the user gave.

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
        if isinstance(error, TypeError | ValueError):
            for name, value in (trl or {}).items():
                if name in str(error) or (isinstance(value, str) and value in str(error)):
                    raise DataError(
                        f"TRL refuses {name} = {value!r} of the table [trl]: {error}"
                    ) from error
        raise


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory of the CPU or the GPU ran out."""
    # torch raises RuntimeError with these words; there is no class for memory of the CPU.
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in MEMORY)
