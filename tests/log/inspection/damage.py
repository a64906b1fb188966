"""Directories to damage, and what was found in them, for the tests of verify and dump."""

import shutil
from pathlib import Path

from sparklog.log.inspection.verify import Verification

GOLDEN = Path(__file__).parents[2] / "golden"
STOPPED = GOLDEN / "kafka-3.9-stopped"
LEFTOVERS = shutil.ignore_patterns("*.deleted")


def copy_of(directory: Path, into: Path) -> Path:
    """A copy without what Kafka was about to remove."""
    return Path(shutil.copytree(directory, into / directory.name, ignore=LEFTOVERS))


def check(*directories: Path, **how):
    """Everything found, and the summary."""
    verification = Verification(directories, **how)
    verification.prepare()
    return list(verification.run()), verification.summary


def problems(*directories: Path, **how):
    """Errors and warnings as (severity, file or directory name, what)."""
    found, summary = check(*directories, **how)
    listed = [(str(each.severity), each.path.name, each.what) for each in found if each.is_problem]
    assert summary.is_sound == (not listed)
    assert summary.errors + summary.warnings + summary.notes == len(found)
    return listed


def notes(*directories: Path):
    """The notes, as (file or directory name, what)."""
    return [(each.path.name, each.what) for each in check(*directories)[0] if not each.is_problem]


def the_problem(*directories: Path):
    """The only one."""
    (found,) = problems(*directories)
    return found


def state_of(directory: Path):
    """Everything of a tree that reading it must not change."""
    return {
        path: (path.lstat().st_mtime_ns, path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in [directory, *directory.rglob("*")]
    }


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit; a negative position counts from the end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
