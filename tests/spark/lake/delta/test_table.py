"""What one job's commits know of each other, and of those that others make between them."""

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.batch.unattended import passes
from sparklog.spark.lake.delta.table import DeltaTable
from sparklog.spark.lake.progress import Progress
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ONE, TWO = (Progress("cluster", TopicPartition("t", number), UUID(int=7)) for number in (1, 2))


@pytest.fixture
def table(spark, interpreted, delta_jars, tmp_path):
    made = DeltaTable(spark, str(tmp_path / "table"))
    made.create(())
    return made


def begun(table, *expected):
    commit = table.begin()
    commit.expect(expected)
    return commit


def test_a_commit_is_known_to_the_next_one_of_its_job(table):
    assert begun(table, ONE).finish([], {ONE: 5}) == 1
    commit = begun(table, ONE)
    assert commit.table.progress == {ONE: 5}
    commit.note_epochs({ONE: 3})
    commit.finish([], {ONE: 8})
    found = table.begin().table
    assert (found.progress, found.epochs) == ({ONE: 8}, {ONE: 3})


def test_what_others_committed_between_two_commits_of_a_job_is_found_out(spark, table):
    other = DeltaTable(spark, table.name)
    begun(table, ONE).finish([], {ONE: 5})
    begun(other, ONE).finish([], {ONE: 6})
    assert table.begin().table.progress == {ONE: 6}


def test_what_others_committed_while_a_commit_was_made_is_found_out(spark, table):
    other = DeltaTable(spark, table.name)
    begun(other, ONE, TWO).finish([], {ONE: 1, TWO: 1})
    commit = begun(table, ONE)
    begun(other, TWO).finish([], {TWO: 9})
    assert commit.finish([], {ONE: 5}) == 3
    assert table.begin().table.progress == {ONE: 5, TWO: 9}


class Died(BaseException):
    """A job was killed."""


def names_synced(monkeypatch):
    """The files and directories that are synced from now on, as they come."""
    found, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (found.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), sync(fd)))
    return found


def commits_in(paths):
    return [int(each.stem) for each in paths if each.suffix == ".json"]


def test_what_a_job_left_that_died_after_its_commit_is_on_the_disk_before_it_is_relied_on(spark, table, monkeypatch):
    """A power cut would else leave an empty file of it, which Delta takes for a commit of nothing."""
    with monkeypatch.context() as dying:
        dying.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            begun(table, ONE).finish([], {ONE: 5})
    synced = names_synced(monkeypatch)
    commit = begun(DeltaTable(spark, table.name), ONE)
    assert commit.table.progress == {ONE: 5}
    commit.settle()
    assert commits_in(synced) == [0, 1]
    assert synced[-2:] == [Path(table.name, "_delta_log"), Path(table.name)]
    del synced[:]
    commit.finish([], {ONE: 9})
    assert commits_in(synced) == [2]


def test_a_commit_makes_those_before_it_durable(spark, table, monkeypatch):
    """That which made the table, and one that somebody else made meanwhile, with its files."""
    commit = begun(table, ONE)
    spark.sql(f"INSERT INTO delta.`{table.name}` (offset) VALUES (1)")
    synced = names_synced(monkeypatch)
    assert commit.finish([], {ONE: 5}) == 2
    assert commits_in(synced) == [0, 1, 2]
    assert {each for each in synced if each.suffix == ".parquet"} == set(Path(table.name).glob("*.parquet")) != set()


def test_a_commit_that_the_disk_did_not_take_is_believed_by_no_later_one_of_its_process(spark, table, monkeypatch):
    """A second sync would succeed: the system has forgotten what it failed to write."""
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(DataSourceError, match="SPARKLOG_TABLE_NOT_DURABLE") as told:
            begun(table, ONE).finish([], {ONE: 5})
        assert not passes(told.value)
    commit = begun(DeltaTable(spark, table.name), ONE)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_TABLE_NOT_DURABLE.*mount"):
        commit.settle()
