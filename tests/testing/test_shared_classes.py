"""ZooKeepers of tests that share their classes."""

import pytest

from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing import shared_classes

pytestmark = pytest.mark.integration


class Telling(EmbeddedZooKeeper):
    """Says of each class where it was loaded from."""

    def options(self):
        return [*super().options(), "-Xlog:class+load"]


def test_the_classes_are_of_the_archive(tmp_path):
    with Telling(tmp_path, fsync=False) as server:
        lines = server.log_path.read_text().splitlines()
    main = next(line for line in lines if EmbeddedZooKeeper.main_class in line)
    assert "shared objects file (top)" in main


def test_an_archive_that_java_does_not_take_is_left_alone(tmp_path, monkeypatch):
    archive = tmp_path / "other.jsa"
    archive.write_bytes(b"of another Java" * 1000)
    monkeypatch.setattr(EmbeddedZooKeeper, "start_options", lambda _: [f"-XX:SharedArchiveFile={archive}"])
    with EmbeddedZooKeeper(tmp_path / "data", fsync=False) as server:
        assert server.alive


def test_it_is_made_again_for_other_jars(monkeypatch, tmp_path):
    before = shared_classes._origin()
    other = tmp_path / "zookeeper.jar"
    other.write_bytes(b"")
    monkeypatch.setattr(shared_classes, "pyspark_jar", lambda _: other)
    assert shared_classes._origin() != before
