"""Offsets of groups in a real ZooKeeper, where Kafka's old consumers and brokers keep them."""

import pytest
from kazoo.security import make_acl

from sparklog.structs import TopicPartition
from sparklog.zk.consumer_offsets import StoredOffsets

pytestmark = pytest.mark.integration

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 11)
LARGEST = (1 << 63) - 1


def test_an_offset_is_a_number_under_the_partition(zk):
    assert zk.consumer_offsets.write("g", {ONE: 5, TWO: LARGEST}) == set()
    assert zk.consumer_offsets.write("g", {ONE: -7}) == set()
    assert zk.data("/consumers/g/offsets/t/0") == b"-7"
    assert zk.data("/consumers/g/offsets/t/11") == b"9223372036854775807"
    assert zk.consumer_offsets.read("g", [ONE, TWO]) == StoredOffsets({ONE: -7, TWO: LARGEST}, set())


def test_nothing_is_told_of_what_nobody_stored(zk):
    zk.consumer_offsets.write("g", {ONE: 5})
    assert zk.consumer_offsets.read("g", [ONE, TWO]) == StoredOffsets({ONE: 5}, set())
    assert zk.consumer_offsets.read("other", [ONE]) == StoredOffsets({}, set())


@pytest.mark.parametrize("data", [b"", b"five", b"1 ", b"9223372036854775808", b"\xff"])
def test_what_is_no_offset_is_unreadable(zk, data):
    zk.kazoo.create("/consumers/g/offsets/t/0", data, makepath=True)
    assert zk.consumer_offsets.read("g", [ONE]) == StoredOffsets({}, {ONE})
    assert zk.consumer_offsets.write("g", {ONE: 3}) == set()
    assert zk.consumer_offsets.read("g", [ONE]).offsets == {ONE: 3}


def test_what_is_anothers_is_neither_read_nor_written(zk):
    nobodys = [make_acl("digest", "nobody:x", all=True)]
    zk.ensure(["/consumers/g/offsets/t"])
    zk.kazoo.create("/consumers/g/offsets/t/0", b"1", acl=nobodys)
    assert zk.consumer_offsets.read("g", [ONE, TWO]) == StoredOffsets({}, {ONE})
    assert zk.consumer_offsets.write("g", {ONE: 3, TWO: 4}) == {ONE}
    assert zk.consumer_offsets.read("g", [ONE, TWO]) == StoredOffsets({TWO: 4}, {ONE})


@pytest.mark.parametrize("group", ["", "/", "a/", "/a", "a//b", "..", "a/../../brokers", ".", "\x00", "\x85", "😀"])
def test_a_name_that_is_no_path_stores_nothing(zk, group):
    assert zk.consumer_offsets.write(group, {ONE: 1}) == {ONE}
    assert zk.consumer_offsets.read(group, [ONE]) == StoredOffsets({}, {ONE})
    assert zk.names("/consumers") == []


@pytest.mark.parametrize("group", ["a/b", "...", "é", " "])
def test_other_names_are_paths_as_they_are(zk, group):
    assert zk.consumer_offsets.write(group, {ONE: 1}) == set()
    assert zk.data(f"/consumers/{group}/offsets/t/0") == b"1"
