"""The order in which a training visits its rows: the same for any number of processes.

Libraries end each pass with an incomplete batch: one process trains on the few rows that are left,
several processes fill the batch up with rows of the beginning, and TRL's GRPO leaves the rows out.
Here a batch that begins at the end of a pass goes on with the next pass, so every batch is full,
and every row is visited as often as any other, give or take once.
"""

import math
from collections.abc import Iterator

import torch

PASSES = 1_000_003
"""Passes of one seed; the next seed begins after them."""


class RowOrder(torch.utils.data.Sampler[int]):
    """Yields the row numbers of one epoch: full batches from an endless series of passes."""

    def __init__(self, rows: int, batch: int, seed: int, repeat: int = 1) -> None:
        """Prepare the order.

        Args:
            rows: Number of rows.
            batch: Rows of one optimizer step, over all processes and accumulated parts.
            seed: Seed of the permutation of each pass.
            repeat: How often each batch is yielded in a row, as TRL's GRPO expects it.
        """
        self.epoch = 0
        self._rows, self._batch, self._seed, self._repeat = rows, batch, seed, repeat
        self._batches = math.ceil(rows / batch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, by which a training that is resumed finds its place."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._batches * self._batch * self._repeat

    def __iter__(self) -> Iterator[int]:
        visited = self._visited(self.epoch * self._batches * self._batch)
        for _ in range(self._batches):
            batch = [next(visited) for _ in range(self._batch)]
            for _ in range(self._repeat):
                yield from batch

    def _visited(self, start: int) -> Iterator[int]:
        """Yield row numbers without end, from a place in the series of all passes on."""
        number, skipped = divmod(start, self._rows)
        while True:
            # The order of a pass follows from the seed and its number alone, so that a resumed
            # training and every process agree on it.
            generator = torch.Generator().manual_seed(self._seed * PASSES + number)
            order = torch.randperm(self._rows, generator=generator).tolist()
            yield from order[skipped:]
            number, skipped = number + 1, 0
