"""What is wrong is told to who sent it, or its connection is closed and the log says why; nobody else notices."""

import random
import socket
import struct
from contextlib import closing

import pytest
from integration import wire

from sparklog.broker.registry import HANDLERS
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeGroupsRequest,
    LeaveGroupRequest,
    OffsetFetchRequest,
    decode_response,
    encode,
    is_flexible,
)
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

MAX_REQUEST = 2 << 20
KEPT = TopicPartition("kept", 0)


class Bystander:
    """A client with nothing to hide, on one connection all the while; it remembers what was acknowledged."""

    def __init__(self, address):
        self.connection = wire.connect(address)
        self.address = address
        self.acknowledged = []
        assert wire.create_topic(self.connection, KEPT.topic)[0] is ErrorCode.NONE

    def check(self):
        """It is still served, so is a newcomer, and all that was acknowledged is there."""
        value = b"record %d" % len(self.acknowledged)
        assert wire.produce(self.connection, KEPT, wire.batch_of(value))[:2] == (ErrorCode.NONE, len(self.acknowledged))
        self.acknowledged.append(value)
        with wire.connect(self.address) as newcomer:
            assert wire.read_all(newcomer, KEPT) == self.acknowledged


@pytest.fixture(scope="module")
def broker(zookeeper, tmp_path_factory):
    """A broker that may be maltreated."""
    settings = {"auto.create.topics.enable": "false", "socket.request.max.bytes": MAX_REQUEST}
    directory = tmp_path_factory.mktemp("maltreated")
    with BrokerHarness(directory, f"{zookeeper.connect_string}/bad-input", settings=settings) as harness:
        yield harness


@pytest.fixture(scope="module")
def bystander(broker):
    bystander = Bystander(broker.address)
    yield bystander
    bystander.connection.close()


@pytest.fixture(autouse=True)
def _nobody_else_notices(broker, bystander):
    pid = broker.pid
    yield
    bystander.check()
    assert broker.alive
    assert broker.pid == pid
    assert "Traceback" not in broker.output()


@pytest.fixture
def connection(broker):
    with wire.connect(broker.address) as opened:
        yield opened


@pytest.fixture
def tp(connection, topic):
    assert wire.create_topic(connection, topic)[0] is ErrorCode.NONE
    return TopicPartition(topic, 0)


def logged(broker, text):
    """Wait until the broker's log says so."""
    return eventually(lambda: text in broker.output(), 60, f"{text!r} in the broker's log")


def assert_hung_up(broker, data, *, because):
    """The broker answers ``data`` by hanging up, and its log names this connection and the reason."""
    before = len(broker.output())
    port, answer = wire.send_raw(broker.address, data)
    assert answer == b""
    opening = f"closing the connection of 127.0.0.1:{port}: "
    # Ports come round again: what was said before is of another connection.
    said = eventually(lambda: [line for line in broker.output()[before:].splitlines() if opening in line], 60, opening)
    (line,) = said
    assert because in line


# Frames.


@pytest.mark.parametrize(
    ("data", "because"),
    [
        (struct.pack(">i", -1), "a frame claims -1 bytes"),
        (struct.pack(">i", -(1 << 31)) + b"x" * 100, "a frame claims"),
        (struct.pack(">i", MAX_REQUEST + 1) + b"x" * 1000, f"a frame claims {MAX_REQUEST + 1} bytes"),
        (struct.pack(">i", 0), "message ends"),
        (struct.pack(">ih", 2, 0), "message ends"),
        (struct.pack(">ihhih", 10, 3, 1, 7, 500), "a field claims 500 bytes"),
        (wire.request_bytes(ApiKey.METADATA, 1, struct.pack(">i", -1))[:-3], "in the middle of a request"),
        (b"\0\0", "in the middle of a request"),
    ],
    ids=["negative", "most-negative", "oversize", "empty", "short", "client-id", "half", "half-length"],
)
def test_a_broken_frame_closes_the_connection(broker, data, because):
    assert_hung_up(broker, data, because=because)


def test_a_large_request_cut_short_closes_the_connection(broker):
    frame = wire.request_bytes(ApiKey.PRODUCE, 9, b"x" * 1_000_000, flexible=True)
    assert_hung_up(broker, frame[:700_000], because="in the middle of a request")


def test_a_request_of_the_largest_size_is_read(broker):
    header = len(wire.request_bytes(ApiKey.METADATA, 1)) - 4
    frame = wire.request_bytes(ApiKey.METADATA, 1, struct.pack(">i", 0) + b"\0" * (MAX_REQUEST - header - 4))
    assert struct.unpack(">i", frame[:4]) == (MAX_REQUEST,)
    with closing(socket.create_connection(wire.endpoint_of(broker.address), 20)) as sock:
        sock.sendall(frame)
        assert struct.unpack(">ii", sock.recv(8, socket.MSG_WAITALL))[1] == wire.CORRELATION_ID


def test_random_bytes_never_harm(broker):
    chance = random.Random(20)
    for _ in range(50):
        body = chance.randbytes(chance.randrange(200))
        assert wire.send_raw(broker.address, body)[1] == b""
        assert_hung_up(broker, struct.pack(">ih", len(body) + 2, 999) + body, because="")


def test_random_bodies_never_harm(broker):
    chance = random.Random(21)
    by_a_controller_only = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
    for _ in range(300):
        handler = HANDLERS[chance.choice(sorted(HANDLERS.keys() - by_a_controller_only))]
        version = chance.choice(handler.versions)
        body = chance.choice([b"", b"\0", b"\0\0\0\1"]) + chance.randbytes(chance.randrange(60))
        wire.send_raw(broker.address, wire.request_bytes(handler.api, version, body, flexible=True))


# Requests.


@pytest.mark.parametrize("api", [-1, 64, 59, 99, 32767])
def test_an_unknown_api_closes_the_connection(broker, api):
    assert_hung_up(broker, wire.request_bytes(api, 0), because=f"client 'hostile' asks for API {api}, which is not")


@pytest.mark.parametrize("api", [api for api in sorted(HANDLERS) if api != ApiKey.API_VERSIONS])
def test_an_unsupported_version_closes_the_connection(broker, api):
    name, top = ApiKey(api).name, HANDLERS[api].versions.stop - 1
    asked = f"client 'hostile' asks for {name} version {top + 1}; {HANDLERS[api].versions.start} to {top} are served"
    assert_hung_up(broker, wire.request_bytes(api, top + 1, flexible=True), because=asked)


def test_an_api_versions_request_of_the_future_is_answered_in_version_0(broker):
    with closing(socket.create_connection(wire.endpoint_of(broker.address), 20)) as sock:
        for version in (99, 4):
            sock.sendall(wire.request_bytes(ApiKey.API_VERSIONS, version, b"\2x\2y\0", flexible=True))
            (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            frame = memoryview(sock.recv(size, socket.MSG_WAITALL))
            assert struct.unpack_from(">i", frame) == (wire.CORRELATION_ID,)
            answer = decode_response(ApiKey.API_VERSIONS, 0 if version == 99 else version, frame[4:])
            expected = ErrorCode.UNSUPPORTED_VERSION if version == 99 else ErrorCode.NONE
            assert answer.error_code == expected
            offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            assert offered == {api: (each.versions.start, each.versions.stop - 1) for api, each in HANDLERS.items()}


@pytest.mark.parametrize("api", sorted(HANDLERS))
def test_a_malformed_body_closes_the_connection(broker, api):
    version = HANDLERS[api].versions.stop - 1
    flexible = is_flexible(ApiKey(api), version)
    # Beyond any length in a flexible version; a null that may not be in the one API that has no such version.
    assert flexible or api in (ApiKey.OFFSET_DELETE, ApiKey.SASL_HANDSHAKE)
    for body in (b"\xff\xff\xff", b"\xff" * 40, b"\xff\xff\xff\xff\x07"):
        assert_hung_up(broker, wire.request_bytes(api, version, body, flexible=flexible), because="")


@pytest.mark.parametrize(
    ("api", "version", "message", "because"),
    [
        (
            ApiKey.OFFSET_FETCH,
            7,
            OffsetFetchRequest(group_id=None, topics=None, require_stable=False),
            "group_id is null",
        ),
        (ApiKey.LEAVE_GROUP, 4, LeaveGroupRequest(group_id="g", members=None), "members is null"),
        (
            ApiKey.LEAVE_GROUP,
            4,
            LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=None)]),
            "malformed MemberIdentity version 4: member_id is null",
        ),
        (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g", None]), "null in groups"),
    ],
    ids=["string", "array", "nested", "element"],
)
def test_a_null_where_none_may_be_closes_the_connection(broker, api, version, message, because):
    body = encode(message, version)
    assert_hung_up(broker, wire.request_bytes(api, version, body, flexible=is_flexible(api, version)), because=because)


# Records.


def corrupt(batch, at=-1):
    batch[at] ^= 0x40
    return batch


def two_batches():
    return wire.batch_of(b"1") + wire.batch_of(b"2")


def old_format():
    batch = wire.batch_of(b"x")
    batch[16] = 1
    return batch


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (corrupt(wire.batch_of(b"value")), ErrorCode.CORRUPT_MESSAGE),
        (corrupt(wire.batch_of(b"value"), 17), ErrorCode.CORRUPT_MESSAGE),
        (corrupt(wire.batch_of(b"value" * 100, compression=CompressionType.ZSTD), 60), ErrorCode.CORRUPT_MESSAGE),
        (wire.batch_of(b"value")[:-1], ErrorCode.INVALID_RECORD),
        (wire.batch_of(b"value")[:40], ErrorCode.INVALID_RECORD),
        (bytearray(), ErrorCode.INVALID_RECORD),
        (bytearray(b"\xff" * 100), ErrorCode.CORRUPT_MESSAGE),
        (wire.batch_of(b"x" * 1_048_588), ErrorCode.MESSAGE_TOO_LARGE),
        (two_batches(), ErrorCode.INVALID_RECORD),
        (wire.batch_of(), ErrorCode.INVALID_RECORD),
        (wire.batch_of(b"x", is_control=True), ErrorCode.INVALID_RECORD),
        (old_format(), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        *("crc", "crc-field", "compressed", "cut", "header-cut", "nothing", "ones", "too-large", "two", "no-records"),
        *("control", "old"),
    ],
)
def test_a_bad_batch_is_refused(broker, connection, tp, batch, error):
    assert wire.produce(connection, tp, wire.batch_of(b"before"))[0] is ErrorCode.NONE
    code, offset, message = wire.produce(connection, tp, batch)
    assert (code, offset) == (error, -1)
    assert message
    logged(broker, f"refused a batch of client 'sparklog' for {tp}: {message}")
    assert wire.produce(connection, tp, wire.batch_of(b"after"))[:2] == (ErrorCode.NONE, 1)
    assert wire.read_all(connection, tp) == [b"before", b"after"]


def test_a_bad_batch_without_acknowledgement_closes_the_connection(broker, connection, tp):
    wire.send_produce(connection, tp, wire.batch_of(b"good"), acks=0)
    wire.send_produce(connection, tp, corrupt(wire.batch_of(b"bad")), acks=0)
    logged(broker, f"produce with acks=0 to {tp} failed: CORRUPT_MESSAGE")
    with wire.connect(broker.address) as another:
        assert wire.read_all(another, tp) == [b"good"]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_a_compacted_topic_takes_no_record_without_a_key(broker, connection, topic, codec):
    assert wire.create_topic(connection, topic, configs={"cleanup.policy": "compact"})[0] is ErrorCode.NONE
    tp = TopicPartition(topic, 0)
    code, _, message = wire.produce(connection, tp, wire.batch_of(b"value", key=None, compression=codec))
    assert code is ErrorCode.INVALID_RECORD
    logged(broker, f"for {tp}: {message}")
    assert wire.produce(connection, tp, wire.batch_of(b"value", compression=codec))[:2] == (ErrorCode.NONE, 0)


def test_the_records_without_a_key_are_named(connection, topic):
    assert wire.create_topic(connection, topic, configs={"cleanup.policy": "compact"})[0] is ErrorCode.NONE
    builder = RecordBatchBuilder()
    for key in (b"k", None, b"k", None):
        builder.append(0, key, b"value")
    wire.send_produce(connection, TopicPartition(topic, 0), builder.build())
    _, version, body = connection.receive()
    result = decode_response(ApiKey.PRODUCE, version, body).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in result.record_errors] == [1, 3]
    assert {each.batch_index_error_message for each in result.record_errors} == {result.error_message}


def test_impossible_acks_are_refused(connection, tp):
    assert wire.produce(connection, tp, wire.batch_of(b"x"), acks=2)[0] is ErrorCode.INVALID_REQUIRED_ACKS
    assert wire.read_all(connection, tp) == []


# Places that do not exist.


@pytest.mark.parametrize("offset", [4, 1 << 40, -5])
def test_an_offset_out_of_range_is_refused(connection, tp, offset):
    assert wire.produce(connection, tp, wire.batch_of(b"0", b"1", b"2"))[0] is ErrorCode.NONE
    fetched = wire.fetch(connection, tp, offset, max_wait_ms=20_000)
    assert (fetched.error, fetched.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])
    assert wire.fetch(connection, tp, 3).error is ErrorCode.NONE


def test_an_unknown_topic_is_not_made_where_that_is_off(connection, topic):
    tp = TopicPartition(topic, 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in wire.metadata(connection, topic, create=True).topics] == [unknown]
    assert wire.produce(connection, tp, wire.batch_of(b"x"))[0] is unknown
    assert wire.fetch(connection, tp, 0).error is unknown
    assert wire.list_offset(connection, tp, -1)[0] is unknown
    assert wire.delete_topic(connection, topic) is unknown
    assert topic not in wire.topic_names(connection)


def test_an_unknown_partition_is_refused(connection, tp):
    for partition in (1, -1, 1 << 30):
        elsewhere = TopicPartition(tp.topic, partition)
        assert wire.produce(connection, elsewhere, wire.batch_of(b"x"))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.fetch(connection, elsewhere, 0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Topics that cannot be.


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "../etc", "é", "x" * 250, "nul\0"])
def test_an_impossible_topic_name_is_refused(connection, name):
    code, message = wire.create_topic(connection, name)
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert repr(name) in message
    (described,) = wire.metadata(connection, name, create=True).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert wire.produce(connection, TopicPartition(name, 0), wire.batch_of(b"x"))[0] is not ErrorCode.NONE


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": (1 << 31) - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 32767}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"no.such.setting": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": "a week"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "shred"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"segment.bytes": "-1"}}, ErrorCode.INVALID_CONFIG),
    ],
    ids=str,
)
def test_an_impossible_topic_is_refused(connection, topic, asked, error):
    code, message = wire.create_topic(connection, topic, **asked)
    assert code is error
    assert str(next(iter(asked.get("configs", asked)))).split("_")[0].rstrip("s") in message
    assert topic not in wire.topic_names(connection)
    assert wire.create_topic(connection, topic)[0] is ErrorCode.NONE


def test_a_topic_is_made_once(connection, tp):
    assert wire.produce(connection, tp, wire.batch_of(b"x"))[0] is ErrorCode.NONE
    code, message = wire.create_topic(connection, tp.topic, partitions=3)
    assert code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert tp.topic in message
    assert wire.read_all(connection, tp) == [b"x"]
