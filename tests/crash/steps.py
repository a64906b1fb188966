"""Cuts an operation short at its n-th step on the disk, as a crash of the process would."""

from collections.abc import Callable
from pathlib import Path

from sparklog.testing.files import Crash, FaultyFiles


def crash_at(root: Path, n: int, operation: Callable[..., object], *, half: bool = False) -> bool:
    """Run ``operation`` and crash at its ``n``-th step under ``root``; False if it has fewer."""
    files = FaultyFiles(root, crash_at=n, half=half)
    try:
        with files:
            operation()
    except Crash:
        return True
    assert not files.crashed, "somebody caught the crash"
    return False
