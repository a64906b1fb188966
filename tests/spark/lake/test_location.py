"""Where a table lies, by its name."""

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.lake.location import identity_of, is_within, location_of


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
    assert location_of(name) == path


def test_a_relative_path_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert location_of("./lake/clicks") == str(tmp_path / "lake" / "clicks")
    with pytest.raises(DataSourceError, match="write file:///PATH"):
        location_of("file:lake/clicks")


@pytest.mark.parametrize("name", ["/a/b", "/a/b/", "/a/x/../b", "file:/a/b", "file:///a/b"])
def test_a_table_is_one_table_under_all_its_names(name):
    assert identity_of(name) == "table /a/b"


def test_one_relative_path_is_two_tables_in_two_directories(tmp_path, monkeypatch):
    found = set()
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        monkeypatch.chdir(directory)
        found.add(identity_of("lake/clicks"))
    assert len(found) == 2


def test_a_table_of_the_catalog_goes_by_its_name():
    assert identity_of("lake.clicks") == "table lake.clicks"


@pytest.mark.parametrize(
    ("one", "other", "within"),
    [
        ("/a/t", "/a/t/dead", True),
        ("/a/t/dead", "/a/t/", True),
        ("file:///a/t", "/a/./t", True),
        ("s3a://b/t", "s3a://b/t/x/y", True),
        ("/a/t", "/a/t-dead", False),
        ("s3a://b/t", "s3a://c/t", False),
        ("lake.clicks", "lake.clicks", True),
        ("lake.clicks", "lake.dead", False),
        ("lake.clicks", "/a/lake.clicks", False),
    ],
)
def test_tables_in_one_directory(one, other, within):
    assert is_within(one, other) is within
    assert is_within(other, one) is within
