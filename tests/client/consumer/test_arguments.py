import numpy
import pytest

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.consumer.arguments import (
    check_offset,
    check_offsets,
    check_partitions,
    check_seconds,
    check_topics,
)
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.errors import LocalProtocolError
from sparklog.structs import TopicPartition

T0 = TopicPartition("t", 0)


def test_offsets_are_taken_bare_or_whole():
    whole = OffsetAndMetadata(7, 2, "note")
    assert check_offsets({T0: 0}) == {T0: OffsetAndMetadata(0)}
    assert check_offsets({T0: whole}) == {T0: whole}


@pytest.mark.parametrize("offset", [-5, OffsetAndMetadata(-1)])
def test_a_negative_offset_is_not_committed(offset):
    with pytest.raises(LocalProtocolError, match="partition t-0"):
        check_offsets({T0: offset})


@pytest.mark.parametrize(
    "offset", [2**63, OffsetAndMetadata(2**63), OffsetAndMetadata(1, 2**31), OffsetAndMetadata(1, -2)]
)
def test_what_no_request_has_room_for_is_told_so(offset):
    for check in (check_offset, lambda at: check_offsets({T0: at})):
        with pytest.raises(LocalProtocolError, match=r"at most 9223372036854775807|from -1 to 2147483647"):
            check(offset)


def test_the_greatest_that_a_request_has_room_for_are_taken():
    for greatest in (OffsetAndMetadata(2**63 - 1, 2**31 - 1), OffsetAndMetadata(numpy.int64(2**63 - 1))):
        assert check_offset(greatest) is greatest


@pytest.mark.parametrize(
    "offsets", [5, {T0: 1.0}, {T0: True}, {T0: "1"}, {("t", 0): 1}, {"t": 5}, {TopicPartition("t", "0"): 1},
                {TopicPartition(b"t", 0): 1}, {T0: OffsetAndMetadata(1, metadata=None)}],
)  # fmt: skip
def test_what_are_no_offsets_is_told_so(offsets):
    with pytest.raises(TypeError):
        check_offsets(offsets)


@pytest.mark.parametrize(
    "partitions", [5, T0, [("t", 0)], ["t"], [TopicPartition("t", "0")], [TopicPartition("t", 0.0)]]
)
def test_what_are_no_partitions_is_told_so(partitions):
    with pytest.raises(TypeError, match=r"TopicPartition\('t', 0\)"):
        check_partitions(partitions)


@pytest.mark.parametrize("topics", [[1], [b"t"], [None], 3])
def test_what_are_no_topics_is_told_so(topics):
    with pytest.raises(TypeError, match="is not a str"):
        check_topics(topics)


def test_what_fits_is_taken():
    assert check_topics(name for name in "ab") == ("a", "b")
    assert check_partitions({T0: 1}) == (T0,)
    check_offset(numpy.int64(3))
    check_seconds(numpy.float64(0.5))
    check_callable("callback", None)


def test_what_is_no_number_of_seconds_is_told_so():
    for timeout in (None, "1", True):
        with pytest.raises(TypeError, match="number of seconds"):
            check_seconds(timeout)
