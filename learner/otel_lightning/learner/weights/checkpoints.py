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
    """Find the newest complete checkpoint, and remove those that a crash left incomplete."""
    complete = []
    for checkpoint in folder.glob("checkpoint-*"):
        try:
            # By the step in the file, since names such as checkpoint-9 and checkpoint-10 do not
            # sort by number.
            step = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["global_step"]
        except (OSError, ValueError, KeyError):
            rmtree(checkpoint, ignore_errors=True)
        else:
            complete.append((step, str(checkpoint)))
    return max(complete)[1] if complete else None


def prepare(folder: Path, fingerprint: str, *, resume: bool) -> None:
    """Begin a folder of checkpoints, or make sure that the one there can be continued.

    Args:
        folder: As `checkpoint_folder` names it.
        fingerprint: Of the rows and the settings; a training continues with the same ones only.
        resume: Whether to continue.

    Raises:
        DataError: If there is nothing to continue, or it was something else.
    """
    if not resume:
        rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text(json.dumps({"fingerprint": fingerprint}), encoding="utf-8")
        return
    if last_checkpoint(folder) is None:
        raise DataError(f"There is no checkpoint in '{folder}' to resume. Run without --resume.")
    written = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if written["fingerprint"] != fingerprint:
        raise DataError(
            f"The checkpoints in '{folder}' are of other transitions or other options. Give the "
            "ones of the interrupted run, or run without --resume."
        )
