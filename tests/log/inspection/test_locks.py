"""Which process holds the lock of a log directory, by the list of the locks that are held."""

import os

import pytest

from sparklog.log.inspection.locks import holder


@pytest.fixture
def log_dir(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / ".lock").touch()
    return tmp_path / "logs"


def name_of(path):
    """What the list calls a file."""
    found = path.stat()
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def holder_by(log_dir, *lines):
    """By a list of these lines."""
    locks = log_dir.parent / "locks"
    locks.write_text("".join(f"{line}\n" for line in lines))
    return holder(log_dir, locks)


@pytest.mark.parametrize("kind", ["FLOCK  ADVISORY ", "POSIX  ADVISORY "])
def test_the_process_is_named_that_holds_the_lock_of_either_kind(log_dir, kind):
    ours, other = name_of(log_dir / ".lock"), name_of(log_dir)
    lines = f"1: {kind} WRITE 77 {other} 0 EOF", f"2: {kind} WRITE 4711 {ours} 0 EOF"
    assert holder_by(log_dir, *lines) == 4711


def test_a_process_without_a_number_here_holds_it_all_the_same(log_dir):
    assert holder_by(log_dir, f"1: FLOCK  ADVISORY  WRITE 0 {name_of(log_dir / '.lock')} 0 EOF") == 0


def test_a_process_that_waits_for_the_lock_does_not_hold_it(log_dir):
    assert holder_by(log_dir, f"1: -> FLOCK  ADVISORY  WRITE 77 {name_of(log_dir / '.lock')} 0 EOF") is None


def test_a_line_that_is_cut_short_is_nobodys_lock(log_dir):
    ours = name_of(log_dir / ".lock")
    assert holder_by(log_dir, "", "1: FLOCK  ADVISORY  WRITE 77", f"2: FLOCK  ADVISORY  WRITE 78 {ours}") == 78


def test_nobody_holds_what_is_not_there_or_cannot_be_told(log_dir):
    assert holder_by(log_dir) is None
    assert holder(log_dir, log_dir / "no list") is None
    (log_dir / ".lock").unlink()
    assert holder_by(log_dir, f"1: FLOCK  ADVISORY  WRITE 77 {name_of(log_dir)} 0 EOF") is None
