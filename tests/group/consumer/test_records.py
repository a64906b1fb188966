"""The records of consumer groups: there and back, damaged, and in contradiction with one another."""

from dataclasses import replace

import pytest
from group.consumer.samples import Play
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord
from sparklog.group.classic.group import Protocol
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ClassicSide
from sparklog.group.consumer.records import changes, read_consumer_group, read_consumer_key
from sparklog.group.offsets import group_key
from sparklog.testing.steps import finish


@pytest.fixture
def play():
    play = Play()
    play.beat(instance_id="i", assignor="range", rack_id="r")
    play.beat(regex="x")
    play.again("m1")
    return play


def values(records):
    return {read_consumer_key(key): value for key, value in records if value is not None}


def test_a_group_is_read_as_it_was(play):
    loaded = read_consumer_group("g", values(finish(changes(None, play.group))))
    assert loaded == play.group


def test_nothing_is_written_where_nothing_changed(play):
    assert finish(changes(play.group, play.group.copy())) == []
    assert finish(changes(None, None)) == []


def test_each_step_writes_what_differs_and_no_more(play):
    before = play.group
    play.again("m1", owned=play.member("m1").assigned)
    assert [key for key, _ in finish(changes(before, play.group))] == [bytes.fromhex("0008 0001 67 0002 6d31")]


def test_a_group_that_ends_is_taken_back_key_by_key(play):
    log = dict(finish(changes(None, play.group)))
    log.update(finish(changes(play.group, None)))
    assert set(log.values()) == {None}
    assert finish(changes(play.group, None))[-1][0] == bytes.fromhex("0003 0001 67"), (
        "the group's own tombstone comes last"
    )


def test_keys_of_other_kinds_are_none_of_ours():
    assert read_consumer_key(group_key("g")) is None
    assert read_consumer_key(bytes.fromhex("0009 0001 67")) is None
    with pytest.raises(CorruptRecord):
        read_consumer_key(bytes.fromhex("0005 0001 67"))


def test_of_two_that_hold_one_partition_the_second_is_left_out(play):
    stored = values(finish(changes(None, play.group)))
    twin = {key: value for key, value in stored.items() if key.member_id == "m1"}
    doubled = {**stored, **{key._replace(member_id="m9"): value for key, value in twin.items()}}
    loaded = read_consumer_group("g", doubled)
    assert loaded.members.keys() == {"m1", "m2"}
    assert "m9" not in loaded.target


def test_what_belongs_to_no_member_is_left_out(play):
    stored = values(finish(changes(None, play.group)))
    orphans = {key: value for key, value in stored.items() if key.subject.name != "MEMBER"}
    assert read_consumer_group("g", orphans) == ConsumerGroup("g", play.group.epoch, 2, topics=play.group.topics)


def test_the_classic_side_of_a_member_is_kept(play):
    group = play.group.copy()
    classic = ClassicSide(6000, (Protocol("a", b"\0" * 200), Protocol("b", b"")))
    group.put(replace(group.members["m2"], classic=classic))
    assert read_consumer_group("g", values(finish(changes(None, group)))).members["m2"].classic == classic


@given(data=st.data())
def test_damage_is_an_error_and_nothing_else(data):
    play = Play()
    play.beat()
    stored = values(finish(changes(None, play.group)))
    key = data.draw(st.sampled_from(sorted(stored)))
    value = bytearray(stored[key])
    cut = data.draw(st.integers(0, len(value)))
    value[cut:] = data.draw(st.binary(max_size=12))
    try:
        read_consumer_group("g", {**stored, key: bytes(value)})
    except CorruptRecord:
        return
