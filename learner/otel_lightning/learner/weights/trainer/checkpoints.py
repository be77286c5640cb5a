"""Checkpoints of an interrupted training, beside the folder that it will make."""

import json
from pathlib import Path
from shutil import rmtree

from otel_lightning.learner.errors import DataError

STATE = "trainer_state.json"
"""The file that the trainer writes last: a checkpoint without it was interrupted."""
CONFIG = "otel_lightning.json"


def checkpoint_folder(output: Path) -> Path:
    """Name the folder of the checkpoints of a training that makes `output`."""
    return output.parent / f".{output.name}.checkpoints"


def last_checkpoint(folder: Path) -> str | None:
    """Find the newest complete checkpoint."""
    # By the step in the file, since names such as checkpoint-9 and checkpoint-10 do not sort by
    # number.
    steps = {str(path): _step(path) for path in folder.glob("checkpoint-*")}
    complete = [(step, path) for path, step in steps.items() if step is not None]
    return max(complete)[1] if complete else None


def remove_incomplete(folder: Path) -> None:
    """Remove checkpoints that a crash or a full disk left incomplete, and a folder without any."""
    for checkpoint in folder.glob("checkpoint-*"):
        if _step(checkpoint) is None:
            rmtree(checkpoint, ignore_errors=True)
    # Without a whole checkpoint it holds nothing to resume from.
    if last_checkpoint(folder) is None:
        rmtree(folder, ignore_errors=True)


def _step(checkpoint: Path) -> int | None:
    """Read the step of a checkpoint; None if it is incomplete."""
    try:
        return int(json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError):
        return None


def prepare(folder: Path, fingerprint: str, *, resume: bool) -> None:
    """Begin a folder of checkpoints, or make sure that the one there can be continued.

    Args:
        folder: As `checkpoint_folder` names it.
        fingerprint: Hash of the rows and the settings: a training continues with the same only.
        resume: Whether to continue.

    Raises:
        DataError: If there is nothing to continue, or it was something else.
    """
    if not resume:
        rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text(json.dumps({"fingerprint": fingerprint}), encoding="utf-8")
        return
    remove_incomplete(folder)
    if last_checkpoint(folder) is None:
        raise DataError(f"There is no checkpoint in '{folder}' to resume. Run without --resume.")
    written = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if written["fingerprint"] != fingerprint:
        raise DataError(
            f"The checkpoints in '{folder}' are of other transitions or other options. Give the "
            "ones of the interrupted run, or run without --resume."
        )
