"""A disk of its own for each broker, whose power can be cut: an ext4 file system in a file.

A cut ends it as it is: what was not flushed is gone, the journal's last entries with it (``EXT4_IOC_SHUTDOWN``, kernel
4.14 or newer). That needs root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sparklog.testing.eventually import eventually

_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = struct.pack("I", 2)
_BYTES = 2 << 30
_UNMOUNTED_S = 20


@contextmanager
def disks(places: list[Path]) -> Iterator[str]:
    """A disk is mounted at each of these places; gives why not, if they cannot be. Unmounted at the end."""
    with ExitStack() as stack:
        try:
            for place in places:
                place.mkdir(parents=True)
                _make(place)
                stack.callback(_unmount, place)
        except (OSError, subprocess.CalledProcessError) as error:
            stack.close()
            yield f"a disk of its own for each broker wants root and loop devices ({error})"
        else:
            yield ""


def is_disk(place: Path) -> bool:
    return place.is_mount()


def flush(place: Path) -> None:
    subprocess.run(["sync", "-f", place], check=True)


def cut_power(place: Path) -> None:
    """Returns when it is there again, as it would be found; whoever had files open there must have ended."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSHING)
    finally:
        os.close(descriptor)
    _unmount(place)
    _mount(place)


def _image(place: Path) -> Path:
    return place.with_name(f"{place.name}.ext4")


def _make(place: Path) -> None:
    with _image(place).open("wb") as file:
        file.truncate(_BYTES)
    subprocess.run(["mkfs.ext4", "-q", _image(place)], check=True, capture_output=True)
    _mount(place)
    (place / "lost+found").rmdir()


def _mount(place: Path) -> None:
    subprocess.run(["mount", "-o", "loop", _image(place), place], check=True, capture_output=True)


def _unmount(place: Path) -> None:
    def is_done() -> bool:
        return subprocess.run(["umount", place], check=False, capture_output=True).returncode == 0

    eventually(is_done, _UNMOUNTED_S, f"{place} to be unmounted")
