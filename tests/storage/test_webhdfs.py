"""HDFS as a place, tried on a real one.

A JVM with a NameNode and a DataNode takes 8 s of a processor to start: with ``make compat``.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.storage.manifests import Manifests
from sparklog.storage.place import Listed, open_place

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]


@pytest.fixture
def uri(hdfs, topic):
    return f"{hdfs.uri}/{topic}/a b/ä%20c"


@pytest.fixture
def place(uri):
    return open_place(uri)


def test_what_is_not_there_is_empty(place):
    assert place.list("a") == Listed({}, ())
    with pytest.raises(FileNotFoundError, match="a/b"):
        place.read("a/b")
    place.remove("a/b")


def test_a_file_is_listed_when_it_is_whole(place):
    data = os.urandom(1 << 20)
    file = place.create("a/b/c")
    for _ in range(5):
        file.write(memoryview(data))
    assert place.list("a/b") == Listed({}, ())
    file.finish()
    assert place.list("a/b") == Listed({"c": 5 << 20}, ())
    assert place.list("a") == Listed({}, ("b",))
    assert place.read("a/b/c") == data * 5
    place.write("a/b/empty", b"")
    assert place.read("a/b/empty") == b""
    with pytest.raises(FileExistsError):
        place.write("a/b/c", b"")


def test_a_file_that_is_given_up_is_not_there(place):
    file = place.create("a/b")
    file.write(b"12")
    file.discard()
    assert place.list("a") == Listed({}, ())


def test_of_many_one_is_put(place, uri):
    def put(number):
        return open_place(uri).publish("a/1", b"%d" % number)

    with ThreadPoolExecutor(4) as threads:
        won = list(threads.map(put, range(8)))
    assert won.count(True) == 1
    assert place.read("a/1") == b"%d" % won.index(True)
    assert place.list("a").files == {"1": 1}


def test_manifests_are_kept_there(place):
    manifests = Manifests(place, "m")
    assert manifests.put(0, {"a": 1})
    assert not manifests.put(0, {"a": 2})
    assert (manifests.numbers(), manifests.read(0)) == (range(1), {"a": 1})


def test_an_hdfs_uri_is_opened_by_http_where_hadoops_settings_say(hdfs, topic, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_dir))
    open_place(f"{hdfs.rpc_uri}/{topic}").write("a", b"1")
    assert open_place(f"{hdfs.uri}/{topic}").read("a") == b"1"


def test_one_that_does_not_answer_is_named():
    with pytest.raises(OSError, match=r"localhost:1 cannot be asked by HTTP"):
        open_place("webhdfs://localhost:1/a").list("")
