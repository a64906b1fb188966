"""Paths on the command line."""

from pathlib import Path

import click
import pytest

from sparklog.cli.main import cli
from sparklog.cli.paths import PathTo


def test_a_path_is_one_and_an_empty_one_is_none(tmp_path):
    assert PathTo().convert(".", None, None) == Path()
    assert PathTo(file_okay=False).convert(tmp_path, None, None) == tmp_path
    with pytest.raises(click.BadParameter, match="an empty path is none"):
        PathTo().convert("", None, None)
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="is a file"):
        PathTo(file_okay=False).convert(str(tmp_path / "file"), None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("log", "verify", ""),
        ("log", "dump", ""),
        ("cert", "ca", ""),
        ("up", "--data", ""),
        ("zookeeper", "--id", "1", "--servers", "1=localhost:1:2:3", "--data", ""),
    ],
    ids=" ".join,
)
def test_no_command_takes_the_working_directory_for_a_name_that_is_empty(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.BadParameter, match="an empty path is none"):
        cli(list(arguments), standalone_mode=False)
    assert list(tmp_path.iterdir()) == []
