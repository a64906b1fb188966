"""Large messages in steps: the same as in one go, and little between two steps."""

import pytest

from sparklog.errors import RemoteProtocolError
from sparklog.protocol import messages, slices
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import encode
from sparklog.protocol.slices import MOST_ELEMENTS, Shared, decoding, encoding, is_large_answer
from sparklog.testing.steps import counted, finish


def list_offsets(topics, partitions):
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    asked = [
        topic.ListOffsetsPartition(partition_index=n, current_leader_epoch=3, timestamp=-1) for n in range(partitions)
    ]
    return messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[topic(name=f"t{n}", partitions=asked) for n in range(topics)]
    )


def join_group(size):
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol
    return messages.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol(name="range", metadata=bytes(size)), protocol(name="sticky", metadata=b"x")],
        reason="why not",
    )


def offset_fetch(partitions):
    topic = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    return messages.OffsetFetchRequest(
        group_id="g", topics=[topic(name="t", partition_indexes=list(range(partitions)))], require_stable=True
    )


CASES = [
    (ApiKey.LIST_OFFSETS, list_offsets(3, 700), range(1, 11)),
    (ApiKey.JOIN_GROUP, join_group(100_000), range(2, 10)),
    (ApiKey.OFFSET_FETCH, offset_fetch(5000), range(2, 8)),
]


@pytest.mark.parametrize(("api", "message", "versions"), CASES)
def test_a_request_in_steps_is_what_it_is_in_one_go(api, message, versions):
    for version in versions:
        body = memoryview(encode(message, version))
        assert encode(finish(decoding(api, version, body)), version) == body


@pytest.mark.parametrize(("api", "message", "versions"), CASES)
def test_an_answer_in_steps_is_what_it_is_in_one_go(api, message, versions):
    for version in versions:
        assert finish(encoding(message, version)) == encode(message, version)


def test_between_two_steps_lies_one_element():
    message = list_offsets(2, 1000)
    body = memoryview(encode(message, 7))
    number, decoded = counted(decoding(ApiKey.LIST_OFFSETS, 7, body))
    assert number >= 2002
    assert is_large_answer(decoded, 7)
    assert counted(encoding(decoded, 7))[0] >= 2002
    assert not is_large_answer(list_offsets(2, 20), 7)


def test_numbers_are_decoded_some_hundred_a_step():
    body = memoryview(encode(offset_fetch(19_000), 7))
    number, _ = counted(decoding(ApiKey.OFFSET_FETCH, 7, body))
    assert number >= 35


@pytest.mark.parametrize(
    ("api", "version", "message"),
    [
        (ApiKey.LIST_OFFSETS, 7, list_offsets(1, MOST_ELEMENTS)),
        (ApiKey.LIST_OFFSETS, 1, list_offsets(MOST_ELEMENTS // 2, 2)),
        (ApiKey.OFFSET_FETCH, 7, offset_fetch(MOST_ELEMENTS)),
    ],
)
def test_a_request_with_too_many_elements_is_refused(api, version, message):
    with pytest.raises(RemoteProtocolError, match=f"names more than {MOST_ELEMENTS} elements; ask for fewer"):
        finish(decoding(api, version, memoryview(encode(message, version))))


@pytest.mark.parametrize("version", [1, 7])
def test_a_count_that_no_elements_follow_costs_nothing(version):
    whole = encode(list_offsets(1, 1), version)
    data = bytearray(whole[:-17]) + (b"\xff\xff\xff\xff\x07" if version == 7 else b"\x7f\xff\xff\xff")
    with pytest.raises(RemoteProtocolError):
        finish(decoding(ApiKey.LIST_OFFSETS, version, memoryview(data)))


@pytest.mark.parametrize(("api", "message", "versions"), CASES)
def test_a_request_cut_short_anywhere_is_malformed(api, message, versions):
    version = versions[-1]
    body = encode(message, version)
    for end in range(0, len(body) - 1, max(len(body) // 300, 1)):
        with pytest.raises(RemoteProtocolError):
            finish(decoding(api, version, memoryview(body[:end])))


def test_null_where_there_may_be_none_is_malformed():
    data = bytearray(encode(list_offsets(1, 1), 1))
    data[-16:-12] = b""
    nameless = encode(list_offsets(1, 1), 1).replace(b"\0\x02t0", b"\xff\xff")
    with pytest.raises(RemoteProtocolError, match="name is null"):
        finish(decoding(ApiKey.LIST_OFFSETS, 1, memoryview(nameless)))


def test_an_element_longer_than_the_window_is_decoded_too():
    message = join_group(slices._WINDOW * 3)
    body = memoryview(encode(message, 9))
    assert [len(each.metadata) for each in finish(decoding(ApiKey.JOIN_GROUP, 9, body)).protocols] == [
        slices._WINDOW * 3,
        1,
    ]


def test_shared_steps_are_taken_once_by_whoever_comes():
    taken = []

    def steps():
        for number in range(3):
            taken.append(number)
            yield
        return "made"

    shared = Shared(steps())
    one, other = shared.steps(), shared.steps()
    next(one)
    next(other)
    one.close()
    assert finish(other) == "made"
    assert finish(shared.steps()) == "made"
    assert taken == [0, 1, 2]


def test_shared_steps_that_fail_fail_for_everybody():
    def steps():
        yield
        raise ZeroDivisionError

    shared = Shared(steps())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            finish(shared.steps())
