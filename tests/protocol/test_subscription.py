import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.subscription import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sparklog.structs import TopicPartition

NAMES = st.text("abc-.", min_size=1, max_size=5)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 5)), unique=True, max_size=8).map(
    lambda found: tuple(sorted(found))
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.lists(NAMES, max_size=4).map(tuple),
    st.none() | st.binary(max_size=10),
    PARTITIONS,
    st.integers(-1, 2**31 - 1),
    st.none() | NAMES,
)


@given(SUBSCRIPTIONS)
def test_a_subscription_comes_back(subscription):
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(SUBSCRIPTIONS, st.integers(0, 2))
def test_older_versions_leave_out_what_they_cannot_say(subscription, version):
    found = decode_subscription(encode_subscription(subscription, version))
    assert (found.topics, found.user_data, found.version) == (subscription.topics, subscription.user_data, version)
    assert found.owned == (subscription.owned if version >= 1 else ())
    assert found.generation == (subscription.generation if version >= 2 else -1)
    assert found.rack is None


@given(PARTITIONS, st.none() | st.binary(max_size=10))
def test_an_assignment_comes_back(partitions, user_data):
    assignment = Assignment(partitions, user_data)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_no_bytes_are_an_empty_assignment():
    assert decode_assignment(b"") == Assignment(())


def test_a_newer_version_is_read_as_the_newest_known():
    subscription = Subscription(("t",), None, (TopicPartition("t", 1),), 7, "r")
    data = bytearray(encode_subscription(subscription))
    data[0:2] = b"\x00\x09"
    assert decode_subscription(bytes(data) + b"later fields") == subscription


@given(st.binary(max_size=60))
def test_garbage_raises_a_protocol_error_or_is_a_subscription(data):
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(RemoteProtocolError):
            decode(data)


def test_a_negative_version_is_refused():
    with pytest.raises(RemoteProtocolError, match="version -1"):
        decode_subscription(b"\xff\xff\x00\x00\x00\x00")


def test_kafka_python_reads_what_we_write():
    subscription = Subscription(("a", "b"), b"x", (TopicPartition("a", 1), TopicPartition("a", 3)), 7)
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription))
    assert list(theirs.topics) == ["a", "b"]
    assert [(each.topic, list(each.partitions)) for each in theirs.owned_partitions] == [("a", [1, 3])]
    assert theirs.generation_id == 7
    share = ConsumerProtocolAssignment.decode(encode_assignment(Assignment((TopicPartition("a", 2),))))
    assert [(each.topic, list(each.partitions)) for each in share.assigned_partitions] == [("a", [2])]
