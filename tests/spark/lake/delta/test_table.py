"""What one job's commits know of each other, and of those that others make between them."""

from uuid import UUID

import pytest

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
