"""The failing disk fails as it says: at that step, in that way, under that root, and a power cut takes what it may."""

import errno
import io
import itertools
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.testing import disk
from sparklog.testing.disk import content_of
from sparklog.testing.files import NO_ERROR, READS, STEPS, Crash, FaultyFiles

SEEDS = range(60)


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    return path


def pwrite(path, data, position=0, *, sync=False):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, data, position)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def every_step(root):
    """One of each kind."""
    (root / "d").mkdir()
    with open(root / "d" / "a", "wb") as file:
        file.write(b"12345678")
        file.flush()
        os.fsync(file.fileno())
    pwrite(root / "d" / "a", b"x", 8)
    descriptor = os.open(root / "d" / "a", os.O_RDWR)
    os.fdatasync(descriptor)
    os.ftruncate(descriptor, 4)
    os.close(descriptor)
    os.truncate(root / "d" / "a", 2)
    os.link(root / "d" / "a", root / "d" / "linked")
    (root / "d" / "linked").unlink()
    (root / "d" / "a").rename(root / "d" / "b")
    os.replace(root / "d" / "b", root / "d" / "c")
    (root / "d" / "c").unlink()
    (root / "d").rmdir()


def outcomes(files, tmp_path, look, page=4096):
    """What ``look`` sees after each of many power cuts."""
    found = set()
    for seed in SEEDS:
        into = tmp_path / f"cut-{seed}"
        files.cut(into, seed, page=page)
        found.add(look(into))
        shutil.rmtree(into)
    return found


def content(name):
    return lambda root: (root / name).read_bytes() if (root / name).exists() else None


def test_every_kind_of_step_is_counted(root):
    with FaultyFiles(root) as files:
        every_step(root)
    everything = files.count
    counts = {}
    for kind in STEPS:
        with FaultyFiles(root, steps=[kind]) as files:
            every_step(root)
        counts[kind] = files.count
    assert set(counts) == set(STEPS)
    assert all(counts.values()), counts
    assert sum(counts.values()) == everything


def test_nothing_of_it_is_left_afterwards(root):
    def functions():
        names = (*STEPS, *READS, "remove", "replace", "listdir")
        return [getattr(os, name) for name in names if hasattr(os, name)], open, io.open

    before = functions()
    with suppress(Crash), FaultyFiles(root, crash_at=3):
        every_step(root)
    assert functions() == before


def test_a_file_may_be_gone_when_the_faults_end(root):
    """As where another thread goes on, and renames what it made while they lasted."""
    unseen = os.unlink
    with FaultyFiles(root):
        (root / "made").write_bytes(b"x")
        unseen(root / "made")
    assert not (root / "made").exists()


def test_a_thread_that_is_at_work_when_the_faults_begin_waits_until_the_tree_is_known(root, tmp_path, monkeypatch):
    (root / "a.tmp").write_bytes(b"a")
    worker = threading.Thread(target=lambda: os.replace(root / "a.tmp", root / "a"))

    def read(path):
        if worker.ident is None:
            worker.start()
        return content_of(path)

    monkeypatch.setattr(disk, "content_of", read)
    with FaultyFiles(root) as files:
        worker.join()
        sync(root)
    assert files.count == 2
    assert outcomes(files, tmp_path, lambda found: tuple(os.listdir(found))) == {("a",)}


def test_a_crash_at_any_step_lets_nothing_after_it_happen(root):
    with FaultyFiles(root) as files:
        every_step(root)
    for number in range(files.count):
        with FaultyFiles(root, crash_at=number) as files:
            with pytest.raises(Crash):
                every_step(root)
            left = sorted(root.rglob("*"))
            for last_words in (lambda: (root / "late").write_bytes(b""), lambda: shutil.rmtree(root / "d")):
                with pytest.raises((Crash, FileNotFoundError)):
                    last_words()
            assert sorted(root.rglob("*")) == left
        assert (files.crashed, files.count) == (True, number + 1)
        shutil.rmtree(root / "d", ignore_errors=True)


def test_a_crash_in_the_middle_of_a_write_leaves_half_of_it(root):
    pwrite(root / "a", b"")
    with FaultyFiles(root, crash_at=0, half=True, steps=["pwrite"]), pytest.raises(Crash):
        pwrite(root / "a", b"abcdef")
    with FaultyFiles(root, crash_at=0, half=True, steps=["write"]), pytest.raises(Crash):
        (root / "b").write_bytes(b"uvwxyz")
    assert [(root / name).read_bytes() for name in "ab"] == [b"abc", b"uvw"]


def test_a_strike_comes_before_the_crash(root):
    struck = []
    with FaultyFiles(root, crash_at=1, strike=lambda: struck.append((root / "a").read_bytes())), pytest.raises(Crash):
        (root / "a").write_bytes(b"x")
    assert struck == [b""]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_one_step_fails_and_the_next_succeeds(root, error):
    with FaultyFiles(root, fail_at=1, error=error):
        (root / "a").mkdir()
        with pytest.raises(OSError) as caught:
            (root / "b").mkdir()
        assert caught.value.errno == error
        (root / "c").mkdir()
    assert sorted(path.name for path in root.iterdir()) == ["a", "c"]


def test_a_lasting_failure_lasts(root):
    with FaultyFiles(root, fail_at=1, lasting=True) as files:
        (root / "a").mkdir()
        for _ in range(3):
            with pytest.raises(OSError):
                (root / "b").mkdir()
    assert not files.crashed


def test_a_write_that_half_fails_is_short_and_the_next_fails(root):
    with FaultyFiles(root, fail_at=0, half=True, error=errno.ENOSPC, steps=["pwrite"]):
        descriptor = os.open(root / "a", os.O_RDWR | os.O_CREAT)
        assert os.pwrite(descriptor, b"abcdef", 0) == 3
        with pytest.raises(OSError, match="No space left"):
            os.pwrite(descriptor, b"def", 3)
        assert os.pwrite(descriptor, b"def", 3) == 3
        os.close(descriptor)


def test_a_write_may_be_short_and_no_error_follow(root):
    with FaultyFiles(root, fail_at=0, half=True, error=NO_ERROR, steps=["pwrite"]):
        descriptor = os.open(root / "a", os.O_RDWR | os.O_CREAT)
        assert os.pwrite(descriptor, b"abcdef", 0) == 3
        assert os.pwrite(descriptor, b"def", 3) == 3
        os.close(descriptor)
    assert (root / "a").read_bytes() == b"abcdef"


@pytest.mark.parametrize(
    "look",
    [lambda root: list(root.glob("*")), lambda root: list(root.iterdir()), lambda root: os.scandir(root).close()],
)
def test_a_directory_is_not_listed_when_that_is_asked_for(root, look):
    with FaultyFiles(root, fail_at=0, error=errno.EMFILE) as files:
        look(root)
    assert files.count == 0
    with (
        FaultyFiles(root, fail_at=0, error=errno.EMFILE, steps=["scandir"]),
        pytest.raises(OSError, match="open files"),
    ):
        look(root)


@pytest.mark.parametrize(
    "look", [Path.read_bytes, lambda path: open(path).close(), lambda path: os.open(path, os.O_RDONLY)]
)
def test_a_file_is_not_opened_to_be_read_when_that_is_asked_for(root, look):
    (root / "a").write_bytes(b"abc")
    fault = {"fail_at": 0, "error": errno.EMFILE, "steps": ["openread"]}
    with FaultyFiles(root, **fault), pytest.raises(OSError, match="open files"):
        look(root / "a")
    with FaultyFiles(root, **fault) as files:
        (root / "b").write_bytes(b"")
    assert files.count == 0


def test_only_the_root_is_touched(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with FaultyFiles(root, fail_at=0, lasting=True) as files:
        every_step(other)
    assert files.count == 0


def test_a_read_fails_only_when_asked_to(root):
    pwrite(root / "a", b"abc")
    descriptor = os.open(root / "a", os.O_RDONLY)
    with FaultyFiles(root, fail_at=0):
        assert os.pread(descriptor, 3, 0) == b"abc"
    with FaultyFiles(root, fail_at=0, steps=READS), pytest.raises(OSError):
        os.pread(descriptor, 3, 0)
    os.close(descriptor)


def test_what_was_there_before_is_certain(root, tmp_path):
    pwrite(root / "a", b"old")
    with FaultyFiles(root) as files:
        pass
    assert outcomes(files, tmp_path, content("a")) == {b"old"}


def test_a_synced_file_in_a_synced_directory_is_certain(root, tmp_path):
    with FaultyFiles(root) as files:
        pwrite(root / "a", b"new", sync=True)
        sync(root)
    assert outcomes(files, tmp_path, content("a")) == {b"new"}


def test_a_synced_file_whose_name_is_not_synced_may_be_gone(root, tmp_path):
    with FaultyFiles(root) as files:
        pwrite(root / "a", b"new", sync=True)
    assert outcomes(files, tmp_path, content("a")) == {b"new", None}


def _made_by_another_process(path):
    subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'wb').write(b'new')"], check=True)


def test_what_another_process_made_is_certain_once_it_and_its_name_are_synced_here(root, tmp_path):
    with FaultyFiles(root) as files:
        _made_by_another_process(root / "draft")
        sync(root / "draft")
        (root / "draft").rename(root / "a")
        sync(root)
    assert outcomes(files, tmp_path, content("a")) == {b"new"}
    assert outcomes(files, tmp_path, content("draft")) == {None}


def test_what_another_process_made_and_nobody_synced_may_be_anything_or_nothing(root, tmp_path):
    with FaultyFiles(root) as files:
        _made_by_another_process(root / "draft")
        (root / "draft").rename(root / "a")
    found = outcomes(files, tmp_path, content("a"), page=4)
    assert {None, b"", b"new"} <= found


def test_a_file_of_another_process_is_not_taken_for_a_removed_one_whose_place_it_has(root, tmp_path):
    with FaultyFiles(root) as files:
        for _ in range(10):  # most file systems give the number of a file that is gone to the next one
            pwrite(root / "old", b"old")
            (root / "old").unlink()
            _made_by_another_process(root / "new")
            sync(root / "new")
            sync(root)
            assert outcomes(files, tmp_path, content("new")) == {b"new"}
            (root / "new").unlink()


def test_unsynced_bytes_are_old_or_new_or_zeros_page_by_page(root, tmp_path):
    pwrite(root / "a", b"aaaa")
    with FaultyFiles(root) as files:
        pwrite(root / "a", b"bbbb")
        pwrite(root / "a", b"bbbb", 4)
    found = outcomes(files, tmp_path, content("a"), page=4)
    assert found == {b"aaaa", b"bbbb", b"aaaabbbb", b"bbbbbbbb", b"aaaa\0\0\0\0", b"bbbb\0\0\0\0"}


def test_every_version_since_the_sync_may_be_the_one(root, tmp_path):
    with FaultyFiles(root) as files:
        pwrite(root / "a", b"1", sync=True)
        sync(root)
        for version in (b"2", b"3"):
            pwrite(root / "a", version)
        pwrite(root / "a", b"4", sync=True)
        pwrite(root / "a", b"5")
    assert outcomes(files, tmp_path, content("a")) == {b"4", b"5"}


def test_a_cut_that_is_not_synced_may_not_have_happened(root, tmp_path):
    pwrite(root / "a", b"12345678")
    with FaultyFiles(root) as files:
        os.truncate(root / "a", 2)
    assert outcomes(files, tmp_path, content("a")) == {b"12345678", b"12", b"12\0\0\0\0\0\0"}


def test_a_failed_sync_is_never_made_good(root, tmp_path):
    pwrite(root / "a", b"old")
    with FaultyFiles(root, fail_at=0, steps=["fsync"]) as files:
        with pytest.raises(OSError):
            pwrite(root / "a", b"new", sync=True)
        sync(root / "a")
    assert outcomes(files, tmp_path, content("a")) == {b"old", b"new"}


def test_names_change_in_order_or_not_at_all(root, tmp_path):
    pwrite(root / "a", b"1")
    with FaultyFiles(root) as files:
        (root / "a").rename(root / "b")
        pwrite(root / "c", b"")
        (root / "b").unlink()
    found = outcomes(files, tmp_path, lambda cut: tuple(sorted(path.name for path in cut.iterdir())))
    assert found == {("a",), ("b",), ("b", "c"), ("c",)}


def test_a_file_replaced_is_the_old_or_the_new_whole(root, tmp_path):
    pwrite(root / "a", b"old")
    with FaultyFiles(root) as files:
        pwrite(root / "a.tmp", b"new", sync=True)
        os.replace(root / "a.tmp", root / "a")
    assert outcomes(files, tmp_path, content("a")) == {b"old", b"new"}


def test_a_file_replaced_by_one_that_is_not_synced_may_be_anything(root, tmp_path):
    pwrite(root / "a", b"old")
    with FaultyFiles(root) as files:
        (root / "a.tmp").write_bytes(b"new")
        os.replace(root / "a.tmp", root / "a")
    assert outcomes(files, tmp_path, content("a")) == {b"old", b"new", b"", b"\0\0\0"}


def test_a_removed_tree_may_come_back(root, tmp_path):
    (root / "d").mkdir()
    pwrite(root / "d" / "a", b"1")
    with FaultyFiles(root) as files:
        shutil.rmtree(root / "d")
    found = outcomes(files, tmp_path, lambda cut: tuple(sorted(path.name for path in cut.rglob("*"))))
    assert found == {("a", "d"), ("d",), ()}


def test_appending_text_goes_through_too(root, tmp_path):
    pwrite(root / "a", b"1\n")
    with FaultyFiles(root) as files, open(root / "a", "a", encoding="utf-8") as file:
        file.write("2\n")
        file.flush()
        os.fsync(file.fileno())
        file.write("3\n")
    assert outcomes(files, tmp_path, content("a")) == {b"1\n2\n", b"1\n2\n3\n", b"1\n2\n\0\0"}


def test_a_disk_is_cut_at_a_standstill_while_another_thread_writes_to_it(root, tmp_path):
    """The thread replaces a file again and again, as one that writes checkpoints does."""
    over = threading.Event()
    for number in range(100):
        (root / f"{number}.log").write_bytes(b"a")

    def replace():
        for number in itertools.count():
            if over.is_set():
                return
            (root / f"{number}.tmp").write_bytes(b"a")
            os.rename(root / f"{number}.tmp", root / "a")

    with FaultyFiles(root) as files, ThreadPoolExecutor(1) as pool:
        work = pool.submit(replace)
        try:
            for seed in range(5):
                with files.at_a_standstill():
                    assert files.is_in_step()
                    files.cut(tmp_path / f"cut-{seed}", seed)
        finally:
            over.set()
        work.result()
    assert not files.is_in_step()
    assert len(list(tmp_path.glob("cut-*"))) == 5


def test_a_cut_is_the_same_for_the_same_seed(root, tmp_path):
    with FaultyFiles(root) as files:
        for number in range(20):
            pwrite(root / f"f{number}", b"%d" % number)
    for name in ("one", "two"):
        files.cut(tmp_path / name, 7)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_what_lies_elsewhere_is_not_taken_for_a_file_that_is_gone(root, tmp_path):
    """A disk gives the number of a removed file to the next one."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with FaultyFiles(root, steps=("fsync",)) as files:
        gone = root / "gone"
        gone.write_bytes(b"x")
        node = files._disk.at(str(gone))
        gone.unlink()
        files._disk._remember(str(elsewhere), node)
        descriptor = os.open(elsewhere, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    assert files.count == 0
