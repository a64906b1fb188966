"""The names under which a table keeps how far it has come."""

from uuid import UUID

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.lake.table import Progress, _path_of
from sparklog.structs import TopicPartition

PROGRESS = Progress("q-A_4", TopicPartition("clicks.eu-1_x", 12), UUID(int=7))


def test_there_and_back():
    assert Progress.from_application(PROGRESS.to_application()) == PROGRESS


@pytest.mark.parametrize(
    "application",
    [
        "",
        "a-streaming-query",
        PROGRESS.to_application().replace("sparklog", "other"),
        PROGRESS.to_application() + ":1",
        PROGRESS.to_application().replace(":12", ":twelve"),
        "sparklog:c:t:no-uuid:1",
    ],
)
def test_the_applications_of_others(application):
    assert Progress.from_application(application) is None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/a b/c%20d#e", "/a b/c%20d#e"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("s3a://bucket/a/", "s3a://bucket/a"),
        ("hdfs://host:9000/a b", "hdfs://host:9000/a b"),
    ],
)
def test_where_a_table_is(name, path):
    assert _path_of(name) == path


def test_a_relative_path_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _path_of("./lake/clicks") == str(tmp_path / "lake" / "clicks")
    with pytest.raises(DataSourceError, match="write file:///PATH"):
        _path_of("file:lake/clicks")
