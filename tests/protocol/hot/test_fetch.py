"""Fetch by hand, byte for byte as the schema library has it."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest, ForgottenPartition, LeaderHint
from sparklog.protocol.messages import encode
from sparklog.protocol.slices import MOST_ELEMENTS, SLICE
from sparklog.protocol.wire import MOST_TAGS, ZERO_UUID
from sparklog.structs import Endpoint, IsolationLevel
from sparklog.testing.steps import counted, finish

relaxed = settings(deadline=None, max_examples=30)
VERSIONS = pytest.mark.parametrize("version", range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1))
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from([("one", UUID(int=1)), ("zwö", UUID(int=2))])
ERRORS = st.sampled_from([code for code in ErrorCode if code.name != "UNKNOWN_SERVER_ERROR"])

ASKED = st.builds(lambda name, *rest: FetchPartition(*name, *rest), NAMES, INT32, INT64, INT32, INT32, INT32, INT64)
REQUESTS = st.builds(
    FetchRequest,
    INT32,
    INT32,
    INT32,
    st.lists(ASKED, max_size=5),
    st.sampled_from(IsolationLevel),
    INT32,
    INT32,
    INT32,
    st.text(max_size=8),
)


def by_topic(partitions):
    topics = {}
    for each in partitions:
        topics.setdefault((each.topic, each.topic_id), []).append(each)
    return topics


def as_library(request, version):
    topic = messages.FetchRequest.FetchTopic
    state = messages.FetchRequest.ReplicaState(replica_id=request.replica_id, replica_epoch=request.replica_epoch)
    message = messages.FetchRequest(
        replica_id=request.replica_id,
        **({"replica_state": state} if version >= 15 and request.replica_id >= 0 else {}),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[
            topic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    topic.FetchPartition(
                        partition=each.partition,
                        current_leader_epoch=each.current_leader_epoch,
                        fetch_offset=each.offset,
                        last_fetched_epoch=each.last_fetched_epoch,
                        log_start_offset=each.log_start_offset,
                        partition_max_bytes=each.max_bytes,
                    )
                    for each in partitions
                ],
            )
            for (name, topic_id), partitions in by_topic(request.partitions).items()
        ],
        forgotten_topics_data=[],
        rack_id=request.rack_id,
    )
    return encode(message, version)


@VERSIONS
@relaxed
@given(request_=REQUESTS)
def test_requests_are_written_as_the_library_writes_them(version, request_):
    assert b"".join(fetch.encode_request(request_, version)) == as_library(request_, version)


def carried(asked, version):
    """What the version carries of what is asked."""
    by_id = version >= fetch.TOPIC_ID_VERSION
    return asked._replace(
        topic="" if by_id else asked.topic,
        topic_id=asked.topic_id if by_id else ZERO_UUID,
        current_leader_epoch=asked.current_leader_epoch if version >= 9 else -1,
        last_fetched_epoch=asked.last_fetched_epoch if version >= 12 else -1,
        log_start_offset=asked.log_start_offset if version >= 5 else -1,
    )


@VERSIONS
@relaxed
@given(request_=REQUESTS)
def test_requests_that_the_library_wrote_are_read(version, request_):
    read = fetch.decode_request(memoryview(as_library(request_, version)), version)
    in_order = [each for group in by_topic(request_.partitions).values() for each in group]
    assert read == FetchRequest(
        request_.max_wait_ms,
        request_.min_bytes,
        request_.max_bytes if version >= fetch.FIRST_VERSION_WITH_LIMIT else 2**31 - 1,
        [carried(each, version) for each in in_order],
        request_.isolation if version >= fetch.FIRST_VERSION_OF_BATCHES else IsolationLevel.READ_UNCOMMITTED,
        request_.replica_id if version <= 14 else max(request_.replica_id, -1),
        request_.session_id if version >= 7 else 0,
        request_.session_epoch if version >= 7 else -1,
        request_.rack_id if version >= 11 else "",
    )


@pytest.mark.parametrize("version", range(7, fetch.MAX_VERSION + 1))
def test_forgotten_partitions_are_read_and_written(version):
    forgotten = messages.FetchRequest.ForgottenTopic(topic="gone", topic_id=UUID(int=5), partitions=[1, 2, 3])
    data = encode(
        messages.FetchRequest(
            replica_id=-1,
            max_wait_ms=1,
            min_bytes=2,
            max_bytes=3,
            isolation_level=0,
            session_id=4,
            session_epoch=5,
            topics=[],
            forgotten_topics_data=[forgotten, forgotten],
            rack_id="rack",
        ),
        version,
    )
    read = fetch.decode_request(memoryview(data), version)
    assert (read.session_id, read.session_epoch, read.rack_id) == (4, 5, "rack" if version >= 11 else "")
    topic = ("", UUID(int=5)) if version >= fetch.TOPIC_ID_VERSION else ("gone", ZERO_UUID)
    assert read.forgotten == [ForgottenPartition(*topic, number) for number in (1, 2, 3)] * 2
    if version <= 14:  # later ones give the replica's id in a tag, which only a follower writes
        read.forgotten = read.forgotten[:3]
        again = fetch.decode_request(memoryview(b"".join(fetch.encode_request(read, version))), version)
        assert again == read


@pytest.mark.parametrize("version", [15, 16, 17])
def test_a_follower_gives_its_id_in_a_tag(version):
    state = messages.FetchRequest.ReplicaState(replica_id=7, replica_epoch=99)
    data = encode(
        messages.FetchRequest(
            replica_state=state,
            max_wait_ms=1,
            min_bytes=2,
            max_bytes=3,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[],
            forgotten_topics_data=[],
            rack_id="",
        ),
        version,
    )
    read = fetch.decode_request(memoryview(data), version)
    assert (read.replica_id, read.replica_epoch) == (7, 99)
    assert bytes(b"".join(fetch.encode_request(read, version))) == data
    crowded = memoryview(data[: data.index(b"\x01" * 3) + 3] + bytes([MOST_TAGS + 1]))
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        fetch.decode_request(crowded, version)


FETCHED = st.builds(
    lambda name, *rest: FetchedPartition(*name, *rest),
    NAMES,
    INT32,
    ERRORS,
    INT64,
    INT64,
    INT64,
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    st.lists(st.binary(min_size=1, max_size=20), max_size=3),
)


def response_as_library(fetched, version, error, session_id):
    topic = messages.FetchResponse.FetchableTopicResponse
    return encode(
        messages.FetchResponse(
            throttle_time_ms=0,
            error_code=error,
            session_id=session_id,
            responses=[
                topic(topic=name, topic_id=topic_id, partitions=[_library_partition(topic, each) for each in group])
                for (name, topic_id), group in by_topic(fetched).items()
            ],
        ),
        version,
    )


def _library_partition(topic, fetched):
    transaction = topic.PartitionData.AbortedTransaction
    return topic.PartitionData(
        partition_index=fetched.partition,
        error_code=fetched.error,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None
        if fetched.aborted is None
        else [transaction(producer_id=producer, first_offset=first) for producer, first in fetched.aborted],
        preferred_read_replica=-1,
        records=b"".join(fetched.records),
    )


@VERSIONS
@relaxed
@given(fetched=st.lists(FETCHED, max_size=5), error=ERRORS, session_id=INT32)
def test_responses_are_written_and_read_as_the_library_does(version, fetched, error, session_id):
    data = b"".join(fetch.encode_response(fetched, version, error=error, session_id=session_id))
    assert data == response_as_library(fetched, version, error, session_id)
    read_error, read = fetch.decode_response(memoryview(data), version)
    assert read_error == (error if version >= 7 else ErrorCode.NONE)
    in_order = [each for group in by_topic(fetched).values() for each in group]
    assert len(read) == len(in_order)
    for there, here in zip(read, in_order, strict=True):
        _assert_carried(there, here, version)


def _assert_carried(there, here, version):
    by_id = version >= fetch.TOPIC_ID_VERSION
    assert (there.topic, there.topic_id) == (("", here.topic_id) if by_id else (here.topic, ZERO_UUID))
    assert (there.partition, there.error) == (here.partition, here.error)
    assert there.high_watermark == here.high_watermark
    knows_transactions = version >= fetch.FIRST_VERSION_OF_BATCHES
    assert there.last_stable_offset == (here.last_stable_offset if knows_transactions else -1)
    assert there.log_start_offset == (here.log_start_offset if version >= 5 else -1)
    assert there.aborted == ((here.aborted or []) if knows_transactions else None)
    assert b"".join(there.records) == b"".join(here.records)


@VERSIONS
def test_a_message_cut_short_anywhere_is_refused(version):
    asked = FetchPartition("topic", UUID(int=3), 1, 2, 3)
    request = b"".join(fetch.encode_request(FetchRequest(1, 2, 3, [asked]), version))
    got = FetchedPartition("topic", UUID(int=3), 1, records=[b"records"], aborted=[(1, 2)])
    response = b"".join(fetch.encode_response([got], version))
    for data, decode in ((request, fetch.decode_request), (response, fetch.decode_response)):
        for size in range(len(data)):
            with pytest.raises(RemoteProtocolError):
                decode(memoryview(data)[:size], version)


@VERSIONS
def test_the_session_of_a_response_is_told(version):
    data = b"".join(fetch.encode_response([], version, session_id=77))
    assert fetch.session_id_of(memoryview(data), version) == (77 if version >= 7 else 0)
    assert fetch.session_id_of(memoryview(b""), version) == 0


@VERSIONS
def test_a_new_leader_is_told_where_the_version_has_room_for_it(version):
    hint = LeaderHint(3, 9, Endpoint("there", 9093), "rack")
    moved = [
        FetchedPartition("t", UUID(int=1), number, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=hint) for number in (0, 1)
    ]
    data = b"".join(fetch.encode_response(moved, version))
    read = messages.decode_response(ApiKey.FETCH, version, memoryview(data))
    told = [each.current_leader for topic in read.responses for each in topic.partitions]
    if version < 16:
        assert b"there" not in data
        return
    assert [(each.leader_id, each.leader_epoch) for each in told] == [(3, 9)] * 2
    assert [(each.node_id, each.host, each.port, each.rack) for each in read.node_endpoints] == [
        (3, "there", 9093, "rack")
    ]


@pytest.mark.parametrize("topics", [1, 2])
def test_a_request_that_names_too_many_partitions_is_refused(topics):
    def decoded(count):
        asked = [FetchPartition(f"t{n % topics}", ZERO_UUID, n, 0, 1) for n in range(count)]
        body = b"".join(fetch.encode_request(FetchRequest(500, 1, 1, asked), 12))
        return fetch.decode_request(memoryview(body), 12)

    assert len(decoded(MOST_ELEMENTS).partitions) == MOST_ELEMENTS
    with pytest.raises(RemoteProtocolError, match="ask for fewer"):
        decoded(MOST_ELEMENTS + 1)


@pytest.mark.parametrize("version", [11, 12])
def test_a_name_that_no_topic_can_have_is_refused(version):
    """3,000 of 32 KB were copied, compared and told again in one go: 30 ms; and a session remembers them."""

    def decoded(length, read, *, forgotten=False):
        one = FetchPartition("t" * length, ZERO_UUID, 0, 0, 1)
        gone = [fetch.ForgottenPartition("t" * length, ZERO_UUID, 0)] if forgotten else []
        request = FetchRequest(500, 1, 1, [] if forgotten else [one], forgotten=gone)
        return read(memoryview(b"".join(fetch.encode_request(request, version))), version)

    for read in (fetch.decode_request, lambda *body: finish(fetch.decoding_request(*body))):
        for forgotten in (False, True):
            decoded(996, read, forgotten=forgotten)
            with pytest.raises(RemoteProtocolError, match="a topic's name has at most 249 characters, and one of"):
                decoded(997, read, forgotten=forgotten)


MANY = 10 * SLICE
LARGE = pytest.mark.parametrize("version", [fetch.MIN_VERSION, fetch.TOPIC_ID_VERSION - 1, fetch.MAX_VERSION])


@LARGE
def test_a_large_request_is_read_in_steps_as_in_one(version):
    by_id = version >= fetch.TOPIC_ID_VERSION
    name, topic_id = ("", UUID(int=1)) if by_id else ("one", ZERO_UUID)
    asked = [FetchPartition(name, topic_id, number, 0, 1) for number in range(MANY)]
    gone = [ForgottenPartition(name, topic_id, number) for number in range(MANY)] if version >= 7 else []
    request = FetchRequest(1, 2, 3, asked, forgotten=gone, rack_id="r" if version >= 11 else "")
    body = memoryview(b"".join(map(bytes, fetch.encode_request(request, version))))
    steps, read = counted(fetch.decoding_request(body, version))
    assert steps >= (len(asked) + len(gone)) / SLICE
    assert read == fetch.decode_request(body, version)
    assert (read.partitions, read.forgotten) == (asked, gone)
    with pytest.raises(RemoteProtocolError):
        finish(fetch.decoding_request(body[:-1], version))


@LARGE
def test_a_large_response_is_written_in_steps_as_in_one(version):
    fetched = [
        FetchedPartition(f"t{number % 3}", UUID(int=number % 3 + 1), number, records=[b"batch"] * (number % 2))
        for number in range(MANY)
    ]
    fetched[5].leader = LeaderHint(1, 2, Endpoint("h", 1))
    steps, body = counted(fetch.encoding_response(fetched, version, session_id=7))
    assert steps >= 2 * MANY / SLICE
    assert body == fetch.encode_response(fetched, version, session_id=7)
