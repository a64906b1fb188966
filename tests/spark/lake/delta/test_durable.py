"""What of a table's log is synced, told by the fsyncs that happen. No JVM has a part in it."""

import errno
import json
import os
from pathlib import Path

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.batch.unattended import passes
from sparklog.spark.lake.delta.durable import DurableLog

EIO = OSError(errno.EIO, "Input/output error")


class Table:
    """Commits by hand, and what is synced of them."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.durable = DurableLog("clicks")
        self._synced, sync = [], os.fsync

        def noted(fd):
            self._synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
            sync(fd)

        monkeypatch.setattr(os, "fsync", noted)

    def commit(self, *versions, adds=()):
        for version in versions:
            actions = [{"commitInfo": {}}, *({"add": {"path": each}} for each in adds)]
            lines = "\n".join(json.dumps(each, separators=(",", ":")) for each in actions)
            (self.log / f"{version:020d}.json").write_text(lines)

    def put(self, path, text="rows"):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def reach(self, version, table_id="one", **more):
        """The files and directories that were synced, from the table's root on."""
        del self._synced[:]
        self.durable.reach(table_id, f"file:{self.root}", version, **more)
        return [str(each.relative_to(self.root)) for each in self._synced]


@pytest.fixture
def table(tmp_path, monkeypatch):
    return Table(tmp_path / "a table", monkeypatch)


def commits(*versions):
    return [f"_delta_log/{each:020d}.json" for each in versions]


NAMES = ["_delta_log", "."]


def test_all_commits_up_to_one_are_synced_once(table):
    table.commit(0, 1, 2, 3)
    assert table.reach(2) == [*commits(0, 1, 2), *NAMES]
    assert table.reach(2) == table.reach(1) == []
    assert table.reach(3) == [*commits(3), *NAMES]


def test_of_a_commit_of_its_own_a_job_syncs_no_more_than_the_file_and_its_name(table):
    table.commit(0, 1)
    table.reach(0)
    table.commit(1, adds=["mine"])
    table.put("mine")
    assert table.reach(1, is_own=True) == [*commits(1), *NAMES]
    table.commit(2, 3)
    assert table.reach(3, is_own=True) == [*commits(2, 3), *NAMES]


def test_the_files_that_others_have_added_are_synced_with_their_directories(table):
    gone, elsewhere = "day=2/gone", ["/elsewhere", "file:/elsewhere", "s3://bucket/a", "../beside"]
    table.commit(0, adds=["one", "day=1/hour%3D%2520x/two%20words", gone, *elsewhere])
    table.put("one")
    table.put("day=1/hour=%20x/two words")
    table.put("../beside")
    assert table.reach(0) == [
        *commits(0),
        "one",
        "day=1/hour=%20x/two words",
        "day=1",
        "day=1/hour=%20x",
        *NAMES,
    ]


@pytest.mark.parametrize(
    "files",
    [
        ["checkpoint.parquet"],
        ["checkpoint.0000000001.0000000002.parquet", "checkpoint.0000000002.0000000002.parquet"],
        ["checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"],
    ],
)
def test_a_job_begins_at_the_newest_checkpoint_that_is_whole(table, files):
    table.commit(*range(8))
    for each in files:
        table.put(f"_delta_log/{5:020d}.{each}")
    table.put("_delta_log/_sidecars/more.parquet")
    table.put(f"_delta_log/{6:020d}.checkpoint.0000000001.0000000002.parquet")
    table.put(f"_delta_log/{7:020d}.checkpoint.parquet", "")
    *first, sidecar = [*(f"_delta_log/{5:020d}.{each}" for each in files), "_delta_log/_sidecars/more.parquet"]
    found = table.reach(7)
    assert sorted(found[: len(files)]) == first
    assert found[len(files) :] == [sidecar, *commits(5, 6, 7), *NAMES]


def test_a_job_that_has_begun_asks_for_no_checkpoint_unless_commits_are_gone(table):
    table.commit(*range(4))
    table.reach(1)
    checkpoint = f"_delta_log/{3:020d}.checkpoint.parquet"
    table.put(checkpoint)
    assert table.reach(3) == [*commits(2, 3), *NAMES]
    table.commit(4, 5, 6)
    table.put(f"_delta_log/{5:020d}.checkpoint.parquet")
    (table.log / f"{4:020d}.json").unlink()
    assert table.reach(6) == [f"_delta_log/{5:020d}.checkpoint.parquet", *commits(5, 6), *NAMES]


def test_a_table_that_was_made_again_is_another_one(table):
    table.commit(0, 1)
    table.reach(1)
    assert table.reach(0, "two") == [*commits(0), *NAMES]


def test_a_table_elsewhere_is_as_durable_as_its_place_makes_it():
    DurableLog("clicks").reach("one", "mock:///clicks", 7)


def test_a_file_that_the_disk_did_not_take_is_believed_no_more(table, monkeypatch):
    """A second sync would succeed: the system has forgotten what it failed to write."""
    table.commit(0)
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(EIO))
        with pytest.raises(DataSourceError, match=r"SPARKLOG_TABLE_NOT_DURABLE.*00\.json.*Input/output error") as told:
            table.reach(0)
    assert not passes(told.value)
    table.durable = DurableLog("the next job of this process")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_TABLE_NOT_DURABLE.*00\.json.*Input/output error"):
        table.reach(0)


@pytest.mark.parametrize("name", ["open", "fsync of a directory"])
def test_what_was_not_tried_or_can_be_tried_again_passes_by_itself(table, monkeypatch, name):
    table.commit(0)
    with monkeypatch.context() as failing:
        if name == "open":
            failing.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
        else:
            failing.setattr("sparklog.spark.lake.delta.durable.sync_directory", lambda _: (_ for _ in ()).throw(EIO))
        with pytest.raises(DataSourceError, match=r"SPARKLOG_TABLE_NOT_WRITTEN.*has version 0, but whether") as told:
            table.reach(0)
    assert passes(told.value)
    assert table.reach(0) == [*commits(0), *NAMES]
