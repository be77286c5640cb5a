"""Several processes that train one model, as `torchrun` starts them; one process by default."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from otel_lightning.learner.errors import DataError

T = TypeVar("T")


def world_size() -> int:
    """Count the processes."""
    # Variables that torchrun sets for each of its processes.
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Say whether this process reads the store and writes the output."""
    return int(os.environ.get("RANK", "0")) == 0


def state() -> Any:
    """Join the processes at the first call; return accelerate's description of them.

    Without `cpu=True`, accelerate takes processes of a machine without accelerator for strangers.

    Raises:
        DataError: If this machine runs more processes than it has accelerators.
    """
    import torch
    from accelerate import PartialState

    count = torch.accelerator.device_count() if torch.accelerator.is_available() else None
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if count is not None and processes > count:
        # NCCL ends such processes with a traceback that names neither number.
        raise DataError(
            f"torchrun starts {processes} processes on this machine, but it has {count} GPU"
            f"{'s' if count > 1 else ''}, and each process needs one. Give --nproc_per_node "
            f"{count}, or set CUDA_VISIBLE_DEVICES= (empty) to train on the CPU."
        )
    return PartialState(cpu=count is None)


def shared(make: Callable[[], T]) -> T:
    """Make something in the main process, and give it to all of them.

    If making fails, the main process ends, and `torchrun` ends the others.
    """
    if world_size() == 1:
        return make()
    from torch import distributed

    state()
    objects: list[T | None] = [make() if is_main() else None]
    distributed.broadcast_object_list(objects, src=0)
    return objects[0]  # type: ignore[return-value]  # the main process made it


def gathered(parts: list[T]) -> list[T]:
    """Join the lists of all processes, in the order of the processes."""
    if world_size() == 1:
        return parts
    from torch import distributed

    of_each: list[list[T] | None] = [None] * world_size()
    distributed.all_gather_object(of_each, parts)
    return [item for part in of_each if part is not None for item in part]
