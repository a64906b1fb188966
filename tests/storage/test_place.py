"""Places are opened by their URIs, and refused where they cannot keep the contract."""

import os

import pytest

from sparklog.errors import ConfigError, StorageError
from sparklog.storage.local import LocalDirectory
from sparklog.storage.place import open_place


@pytest.mark.parametrize("name", ["a", "a b", "a%20b", "ä#c?"])
def test_a_path_is_taken_as_it_is(tmp_path, name):
    place = open_place(str(tmp_path / name))
    place.write("x", b"1")
    assert (tmp_path / name / "x").read_bytes() == b"1"


def test_a_file_uri_may_have_escapes(tmp_path):
    open_place(f"file://{tmp_path}/a%20b").write("x", b"1")
    open_place(f"file:{tmp_path}/c").write("x", b"1")
    assert sorted(os.listdir(tmp_path)) == ["a b", "c"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a/..", "..", "a\0b"])
@pytest.mark.parametrize("kind", ["local", "hdfs"])
def test_no_path_leads_out_of_a_place(tmp_path, kind, path):
    (tmp_path / "x").write_bytes(b"1")
    place = open_place(str(tmp_path / "place") if kind == "local" else "webhdfs://127.0.0.1:1/place")
    for use in (place.list, place.read, place.create, place.remove, lambda it: place.write(it, b"2")):
        with pytest.raises(StorageError, match="leads out of the place"):
            use(path)
    with pytest.raises(StorageError, match="leads out of the place"):
        place.publish(path, b"2")
    assert (tmp_path / "x").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/a", "cannot put a file only if there is none"),
        ("file://host/a", "write file:///PATH"),
        ("file:a", "write file:///PATH"),
        ("webhdfs://host:1", "write webhdfs://NAMENODE:9870/PATH"),
        ("webhdfs:///a", "write webhdfs://NAMENODE:9870/PATH"),
        (" ", "not nothing"),
    ],
)
def test_what_is_no_place_is_refused(uri, said):
    with pytest.raises(ConfigError, match=said):
        open_place(uri)


class _Deaf(LocalDirectory):
    """A place whose answer to a link is lost, as a file server's may be."""

    def _put(self, part, path):
        super()._put(part, path)
        raise OSError("no answer")


def test_what_was_published_though_the_answer_was_lost_counts(tmp_path):
    place = _Deaf(str(tmp_path))
    assert place.publish("a/1", b"mine")
    assert not LocalDirectory(str(tmp_path)).publish("a/1", b"yours")
    with pytest.raises(OSError, match="no answer"):
        place.publish("a/1", b"yours")
    assert place.read("a/1") == b"mine"
    assert os.listdir(tmp_path / "a") == ["1"]
