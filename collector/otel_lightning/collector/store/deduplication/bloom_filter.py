"""A set of keys in memory that misses none of them, and is rarely wrong about other keys.

Source:
    Bloom, Space/time trade-offs in hash coding with allowable errors (1970).
"""

import numpy as np
from numpy.typing import NDArray

BITS_A_KEY, PROBES = 32, 6  # false positives of a full filter: at most 25 in a million
MANY = 8
"""If this many times the keys are more than the capacity, the bits are set in an array of bytes
first: five times as fast, with eight times the memory for a moment."""


class BloomFilter:
    """A Bloom filter: a set of keys with no false negatives and few false positives."""

    def __init__(self, capacity: int, probes: int = PROBES) -> None:
        """Make an empty filter.

        Args:
            capacity: Number of keys above which false positives become more frequent.
            probes: Number of bits of each key. With 12 a full filter has 0.9 false positives in a
                million; to add a key takes time in proportion.
        """
        self._rows, self.capacity, self._probes = 0, capacity, probes
        self._size = np.uint64(capacity * BITS_A_KEY)
        self._bits = np.zeros(capacity * BITS_A_KEY // 8, np.uint8)

    @property
    def rows(self) -> int:
        """Number of keys that were added."""
        return self._rows

    @property
    def probes(self) -> int:
        """Number of bits of each key."""
        return self._probes

    @property
    def bits(self) -> NDArray[np.uint8]:
        """The whole content, shape [bytes]."""
        return self._bits

    def restore(self, bits: NDArray[np.uint8], rows: int) -> None:
        """Take over the content of a filter of the same capacity and number of probes.

        Raises:
            ValueError: If it has another size.
        """
        self._bits[:] = bits
        self._rows = rows

    @property
    def is_full(self) -> bool:
        """Whether more keys would make false positives too frequent."""
        return self._rows > self.capacity

    def may_hold(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each key, shape [N], whether it may have been added. False is certain."""
        possible = np.arange(len(keys))
        for probe in range(self._probes):
            byte, bit = _bit(self._place(keys[possible], probe))
            possible = possible[self._bits[byte] & bit != 0]
        is_possible = np.zeros(len(keys), bool)
        is_possible[possible] = True
        return is_possible

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Add keys, shape [N]."""
        self._rows += len(keys)
        if len(keys) * MANY > self.capacity:
            set_bits = np.zeros(len(self._bits) * 8, bool)
            for probe in range(self._probes):
                set_bits[self._place(keys, probe).view(np.int64)] = True
            self._bits |= np.packbits(set_bits, bitorder="little")
            return
        for probe in range(self._probes):
            byte, bit = _bit(self._place(keys, probe))
            np.bitwise_or.at(self._bits, byte, bit)

    def _place(self, keys: NDArray[np.uint64], probe: int) -> NDArray[np.uint64]:
        """Return the number of one bit of each key."""
        # Double hashing: the low bits choose the first place, the high bits the distance between
        # places. The distance is odd, because the size is even: a common factor wastes places.
        step = (keys >> np.uint64(32)) | np.uint64(1)
        return (keys + np.uint64(probe) * step) % self._size


def _bit(position: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the byte of each place, and its bit in that byte."""
    bit = np.left_shift(1, (position & np.uint64(7)).astype(np.uint8), dtype=np.uint8)
    return (position >> np.uint64(3)).view(np.int64), bit
