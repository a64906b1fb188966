"""What a broker may say of its last stop: only what all its directories bear out."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from log.samples import TP, batch_of

from sparklog.config.topic import TopicConfig
from sparklog.log.directories.clean_stop import CleanStop, unbroken_since, write_marker
from sparklog.log.directories.manager import LogManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

MARKER, LOCK = ".kafka_cleanshutdown", ".lock"


@pytest.fixture
def later():
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def homes(tmp_path):
    found = [tmp_path / "a", tmp_path / "b"]
    for each in found:
        each.mkdir()
        (each / LOCK).touch()
    return found


def opened(later, homes, since=None):
    manager = LogManager(homes, TopicConfig(), ManualClock(), later)
    manager.own("cluster", 1)
    manager.unbroken_since = since
    manager.load({})
    return manager


def test_what_is_written_is_read_back_and_is_as_kafka_writes_it(homes):
    for each in homes:
        write_marker(each, CleanStop(7, 2))
    assert unbroken_since(homes) == 7
    lock = (homes[0] / LOCK).stat()
    assert json.loads((homes[0] / MARKER).read_bytes()) == {
        "version": 0,
        "brokerEpoch": 7,
        "directories": 2,
        "lock": [lock.st_ino, lock.st_ctime_ns],
    }


def test_the_first_epoch_of_all_is_one(homes):
    for each in homes:
        write_marker(each, CleanStop(0, 2))
    assert unbroken_since(homes) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":0}',
        b'{"version":0,"brokerEpoch":7}',
        b'{"version":0,"brokerEpoch":6,"directories":2}',
        b'{"version":0,"brokerEpoch":"7","directories":2}',
        b'{"version":0,"brokerEpoch":-7,"directories":2}',
        b'{"version":0,"brokerEpoch":7,"directories":3}',
        b'{"version":0,"brokerEpoch":7,"directories":2}',
        b"\xff",
    ],
    ids=[
        "empty",
        "torn",
        "a list",
        "no epoch",
        "Kafka's",
        "another epoch",
        "text",
        "negative",
        "another number",
        "no lock",
        "bytes",
    ],
)
def test_one_directory_that_says_something_else_is_enough_to_say_nothing(homes, content):
    write_marker(homes[0], CleanStop(7, 2))
    (homes[1] / MARKER).write_bytes(content)
    assert unbroken_since(homes) is None


def test_a_directory_without_a_marker_is_enough_to_say_nothing(homes):
    write_marker(homes[0], CleanStop(7, 2))
    assert unbroken_since(homes) is None


def test_a_directory_that_is_used_no_more_is_missed(homes):
    for each in homes:
        write_marker(each, CleanStop(7, 2))
    assert unbroken_since(homes[:1]) is None


def test_a_clean_stop_is_told_once(later, homes):
    opened(later, homes, since=7).close()
    assert unbroken_since(homes) == 7
    manager = opened(later, homes)
    assert unbroken_since(homes) is None, "what is appended from now on is not flushed"
    manager.close()
    assert (homes[0] / MARKER).exists()
    assert unbroken_since(homes) is None, "nobody has said since when"


def test_a_stop_with_a_directory_out_of_service_says_nothing(later, homes):
    manager = opened(later, homes, since=7)
    manager.fail(homes[0], "its disk failed")
    manager.close()
    assert (homes[1] / MARKER).exists()
    assert unbroken_since(homes) is None
    assert unbroken_since(homes[1:]) is None


def without_its_directory(home):
    shutil.rmtree(home)


def without_its_end(home):
    (log,) = home.glob("*.log")
    os.truncate(log, log.stat().st_size - 1)


@pytest.mark.parametrize("times", [(1,), (1, 2)], ids=["one record", "several"])
@pytest.mark.parametrize("harm", [without_its_directory, without_its_end])
def test_a_broker_that_lacks_what_it_had_at_its_stop_says_nothing(later, homes, caplog, harm, times):
    """It would lead if no other is there yet, and have the others drop what it lacks."""
    manager = opened(later, homes, since=7)
    for tp in (TP, TopicPartition("empty", 0)):
        manager.get_or_create(tp, None, None)
    manager.logs[TP].append_as_leader(batch_of(*times), 0)
    path = manager.logs[TP].directory
    manager.close()
    manager = opened(later, homes, since=unbroken_since(homes))
    assert (manager.unbroken_since, caplog.messages) == (7, [])
    empty = manager.logs[TopicPartition("empty", 0)].directory
    manager.close()
    shutil.rmtree(empty)
    harm(path)
    manager = opened(later, homes, since=unbroken_since(homes))
    assert manager.unbroken_since is None
    (said,) = (line for line in caplog.messages if "have lost what they held" in line)
    assert said.startswith(f"1 partition(s) of {path.parent} have lost what they held at the last stop: {TP}")
    manager.close()


def test_a_partition_that_cannot_be_served_has_lost_nothing(later, homes, caplog):
    """It is not served, and the log says so: nobody is told that what it held is gone."""
    manager = opened(later, homes, since=7)
    manager.get_or_create(TP, None, None).append_as_leader(batch_of(1), 0)
    path = manager.logs[TP].directory
    manager.close()
    (index,) = path.glob("*.index")
    index.unlink()
    index.mkdir()
    manager = opened(later, homes, since=unbroken_since(homes))
    assert (set(manager.unusable), manager.unbroken_since) == ({TP}, 7)
    assert not [line for line in caplog.messages if "have lost what they held" in line]
    manager.close()


def test_a_copy_of_a_directory_says_nothing(later, homes):
    """What was written after the copy was made is not in it, and the broker's life went on."""
    opened(later, homes, since=7).close()
    copies = [shutil.copytree(each, each.with_name(f"copy of {each.name}")) for each in homes]
    opened(later, homes, since=7).close()
    for home, copy in zip(homes, copies, strict=True):
        shutil.rmtree(home)
        copy.rename(home)
    assert unbroken_since(homes) is None
    opened(later, homes, since=9).close()
    assert unbroken_since(homes) == 9
