"""Small disks of their own: ext4 or btrfs in a file, mounted through a loop device.

Only root can mount them.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.running import finish

SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2
"""`EXT4_IOC_SHUTDOWN`: the file system answers with EIO from now on, as if the disk was pulled."""


class Disk:
    """A mounted disk that a test can break."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder
        self._devices: list[str] = []

    def mount(self) -> None:
        """Mount it, or mount it again, on a device of its own."""
        device = finish("losetup", "--find", "--show", self._image, check=True).stdout.strip()
        self._devices.append(device)
        finish("mount", device, self.folder, check=True)

    def limit(self, size: str) -> None:
        """Let this size be used, such as 20M, or none: beyond it writes fail with EDQUOT."""
        finish("btrfs", "qgroup", "limit", size, self.folder, check=True)

    def unmount(self) -> None:
        """Unmount it, also while files there are open: who has them open keeps them."""
        finish("umount", "--lazy", self.folder, check=True)

    def make_read_only(self) -> None:
        """Abort its journal, as ext4 does after an error of the disk."""
        finish("mount", "-o", "remount,abort", self.folder, check=True)

    def pull(self) -> None:
        """Let each access fail with EIO."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(folder)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let each write wait until the block has ended, as on a disk that hangs."""
        finish("fsfreeze", "--freeze", self.folder, check=True)
        try:
            yield
        finally:
            finish("fsfreeze", "--unfreeze", self.folder, check=True)

    def fill(self) -> Path:
        """Write until no byte is free; deleting the file that is returned makes room again."""
        file = self.folder / "fill"
        finish("dd", "if=/dev/zero", f"of={file}", "bs=64k")
        finish("dd", "if=/dev/zero", f"of={file}", "bs=512", "conv=notrunc", "oflag=append")
        return file

    def release(self) -> None:
        """Let go of the devices."""
        while os.path.ismount(self.folder):
            self.unmount()
        for device in self._devices:
            finish("losetup", "--detach", device)


@contextmanager
def mounted(
    folder: Path, megabytes: int = 64, inodes: int | None = None, quota: str = ""
) -> Iterator[Disk]:
    """Mount a new disk at a folder for the block; skip the test where that is not allowed."""
    folder.mkdir()
    image = folder.with_name(folder.name + ".img")
    image.touch()
    os.truncate(image, megabytes << 20)
    disk = Disk(image, folder)
    try:
        try:
            few = ["-N", str(inodes)] if inodes else []
            mkfs = ["mkfs.btrfs"] if quota else ["mkfs.ext4", *few]
            finish(*mkfs, "-q", image, check=True)
            disk.mount()
            if quota:
                finish("btrfs", "quota", "enable", folder, check=True)
                disk.limit(quota)
        except (OSError, AssertionError) as error:
            pytest.skip(f"such a disk cannot be mounted here: {error}")
        yield disk
    finally:
        disk.release()
