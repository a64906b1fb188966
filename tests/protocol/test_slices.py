"""Large messages in steps: the same as in one go, and little between two steps."""

import tracemalloc
from uuid import UUID

import pytest
from protocol.schema_bytes import uvarint

from sparklog.errors import RemoteProtocolError
from sparklog.protocol import messages, slices
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import encode
from sparklog.protocol.slices import (
    MOST_BYTES,
    MOST_ELEMENTS,
    MOST_OF_BLOBS,
    Shared,
    decoding,
    encoding,
    encoding_in_pieces,
    is_large_answer,
)
from sparklog.protocol.wire import MOST_OF_STRING, MOST_TAGS
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


def described_members(members, names, partitions):
    """Of a group of the consumer protocol. Texts, numbers, and structs in structs that are no arrays."""
    group = messages.ConsumerGroupDescribeResponse.DescribedGroup
    topic = group.Member.Assignment.TopicPartitions(
        topic_id=UUID(int=1), topic_name="t", partitions=list(range(partitions))
    )
    assignment = group.Member.Assignment(topic_partitions=[topic] * 3)
    member = group.Member(
        member_id="m",
        client_id="c",
        client_host="h",
        subscribed_topic_names=[f"t{number}" for number in range(names)],
        assignment=assignment,
        target_assignment=assignment,
    )
    described = group(error_code=0, group_id="g", group_state="s", assignor_name="a", members=[member] * members)
    return messages.ConsumerGroupDescribeResponse(groups=[described])


def of_partitions(cursor):
    topic = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    partition = topic.DescribeTopicPartitionsResponsePartition
    partitions = [
        partition(partition_index=n, replica_nodes=[n], isr_nodes=[], offline_replicas=[]) for n in range(300)
    ]
    return messages.DescribeTopicPartitionsResponse(topics=[topic(name="t", partitions=partitions)], next_cursor=cursor)


ANSWERS = [
    (None, described_members(2, 1200, 700), range(0, 2)),
    (None, described_members(1, 0, 0), range(0, 2)),
    (None, of_partitions(None), range(0, 1)),
    (None, of_partitions(messages.DescribeTopicPartitionsResponse.Cursor(topic_name="t", partition_index=1)), range(1)),
]


def test_what_is_nested_deep_counts_and_is_encoded_in_steps_too():
    """A group of 100 members that had 2,000 names each was encoded in one go, which held up all others for 115 ms."""
    message = described_members(20, 2000, 10)
    assert is_large_answer(message, 0)
    assert counted(encoding(message, 0))[0] >= 20 * 2000 // slices._RUN
    assert is_large_answer(described_members(1, 0, 2000), 0)
    assert not is_large_answer(described_members(3, 100, 10), 0)


def test_a_large_answer_is_made_of_pieces():
    member = messages.JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=bytes(1 << 20))
    message = messages.JoinGroupResponse(members=[member] * 5)
    assert is_large_answer(message, 5)
    pieces = finish(encoding_in_pieces(message, 5))
    assert b"".join(pieces) == encode(message, 5)
    assert len(pieces) >= 5
    assert len(pieces[0]) < 100, "what a frame begins with is copied"
    assert max(map(len, pieces)) < (1 << 20) + 100
    assert not any(isinstance(each, bytes) for each in pieces), "no piece was copied to be handed on"


@pytest.mark.parametrize(("api", "message", "versions"), [*CASES, *ANSWERS])
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


def of_names(size):
    """A request of so many bytes and some in names of states that there are not, all of which are told again."""
    names = [f"{number:05}{'x' * 32_000}" for number in range(size // 32_000 + 1)]
    return messages.ListTransactionsRequest(state_filters=names, producer_id_filters=[], duration_filter=-1)


def test_a_request_with_too_many_bytes_of_names_is_refused():
    """96 MB of them held up all others for 400 ms, and took 360 MB."""
    body = memoryview(encode(of_names(MOST_BYTES), 1))
    with pytest.raises(RemoteProtocolError, match="LIST_TRANSACTIONS requests have at most 8 MB, and this one has 8"):
        decoding(ApiKey.LIST_TRANSACTIONS, 1, body)
    body = memoryview(encode(of_names(MOST_BYTES - 64_000), 1))
    assert finish(decoding(ApiKey.LIST_TRANSACTIONS, 1, body)).producer_id_filters == []


def test_names_of_topics_as_many_and_as_long_as_may_be_are_no_more_than_a_request_may_have():
    assert MOST_ELEMENTS * (249 + 100) < MOST_BYTES


def sync_group(size):
    assignments = [messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))]
    return messages.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=assignments)


@pytest.mark.parametrize("api", [ApiKey.SYNC_GROUP, ApiKey.COMMIT_COMPACTION, ApiKey.ERASE_RECORDS, ApiKey.JOIN_GROUP])
def test_a_blob_may_be_larger_than_names_and_is_copied_in_one_go(api):
    """One of 90 MB held up all others for 65 ms."""
    with pytest.raises(RemoteProtocolError, match=f"{api.name} requests have at most 16 MB, and this one has 90"):
        decoding(api, 0, memoryview(bytes(90 << 20)))
    body = memoryview(encode(sync_group(MOST_OF_BLOBS - 100), 1))
    assert len(finish(decoding(ApiKey.SYNC_GROUP, 1, body)).assignments[0].assignment) == MOST_OF_BLOBS - 100


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


def tagged(count):
    return uvarint(count) + b"".join(uvarint(1000 + number) + b"\2??" for number in range(count))


def metadata(topics, tags, end=b"\0"):
    """Version 9, of topics that have so many tagged fields each."""
    return memoryview(uvarint(topics + 1) + (b"\2t" + tagged(tags)) * topics + bytes(3) + end)


def test_tagged_fields_that_nobody_knows_are_passed_over_and_not_kept():
    decoded = finish(decoding(ApiKey.METADATA, 9, metadata(3, 5, tagged(4))))
    assert [each.name for each in decoded.topics] == ["t", "t", "t"]
    assert [each.unknown_tags for each in (decoded, *decoded.topics)] == [None] * 4


@pytest.mark.parametrize("body", [metadata(0, 0, tagged(MOST_TAGS + 1)), metadata(1, MOST_TAGS + 1)])
def test_a_structure_of_more_tagged_fields_than_anybody_sends_is_refused(body):
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        finish(decoding(ApiKey.METADATA, 9, body))


def test_tagged_fields_count_as_elements():
    topics = MOST_ELEMENTS // (MOST_TAGS + 1)
    number, decoded = counted(decoding(ApiKey.METADATA, 9, metadata(topics, MOST_TAGS)))
    assert number == len(decoded.topics) == topics
    with pytest.raises(RemoteProtocolError, match="ask for fewer"):
        finish(decoding(ApiKey.METADATA, 9, metadata(topics + 1, MOST_TAGS)))


@pytest.mark.parametrize("cursor", [b"\xff", b"\1\2t\0\0\0\3" + tagged(2), b"\1\2t\0\0\0\3" + tagged(MOST_TAGS + 1)])
def test_the_tagged_fields_of_a_structure_within_are_passed_over_too(cursor):
    steps = decoding(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(b"\1\0\0\0\7" + cursor + b"\0"))
    if len(cursor) > MOST_TAGS:
        with pytest.raises(RemoteProtocolError, match="tagged fields"):
            finish(steps)
        return
    found = finish(steps).cursor
    assert found is None if cursor == b"\xff" else (found.topic_name, found.partition_index) == ("t", 3)


def test_tagged_fields_that_the_schema_has_are_read():
    cluster = b"\0\3\3ab"
    state = b"\1\x0d" + (7).to_bytes(4, "big") + (9).to_bytes(8, "big") + b"\0"
    head = bytes(4 + 4 + 4 + 1 + 4 + 4)
    partition = bytes(4 + 4 + 8 + 4 + 8 + 4) + b"\1\0\x10" + UUID(int=5).bytes
    body = head + b"\2" + bytes(16) + b"\2" + partition + b"\0\1\1\3" + b"\x63\1?" + state + cluster
    decoded = finish(decoding(ApiKey.FETCH, 17, memoryview(body)))
    assert decoded.topics[0].partitions[0].replica_directory_id == UUID(int=5)
    assert (decoded.replica_state.replica_id, decoded.replica_state.replica_epoch) == (7, 9)
    assert decoded.cluster_id == "ab"


def test_a_body_is_not_copied_to_be_decoded():
    body = memoryview(bytes(4_000_000))
    tracemalloc.start()
    try:
        finish(decoding(ApiKey.LIST_OFFSETS, 5, body))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def described(*groups):
    return memoryview(
        encode(messages.DescribeGroupsRequest(groups=list(groups), include_authorized_operations=False), 5)
    )


def named(size):
    topic = messages.MetadataRequest.MetadataRequestTopic
    return memoryview(encode(messages.MetadataRequest(topics=[topic(name="t" * size)]), 9))


def beating(size):
    return memoryview(encode(messages.HeartbeatRequest(group_id="g" * size, generation_id=1, member_id="m"), 4))


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (ApiKey.HEARTBEAT, 4, beating),
        (ApiKey.METADATA, 9, named),
        (ApiKey.DESCRIBE_GROUPS, 5, lambda size: described("g", "g" * size)),
    ],
)
def test_a_compact_string_is_no_longer_than_another(api, version, body):
    longest = body(MOST_OF_STRING)
    assert encode(finish(decoding(api, version, longest)), version) == longest
    with pytest.raises(RemoteProtocolError, match="a string of 32768 bytes"):
        finish(decoding(api, version, body(MOST_OF_STRING + 1)))


def test_long_texts_are_fewer_a_step():
    body = described(*["g" * MOST_OF_STRING] * 100)
    assert counted(decoding(ApiKey.DESCRIBE_GROUPS, 5, body))[0] >= len(body) // (slices._FAR + MOST_OF_STRING)


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
