"""Requests and responses of every version served, against bytes made from the schemas by other means."""

import random
import time

import pytest
from protocol.schema_bytes import RandomFill, SchemaEncoder, uvarint

from sparklog.broker.registry import OFFERED
from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SCHEMAS, decode_request, decode_response, encode, encode_request, is_flexible

SERVED = [(api, version) for api, versions in sorted(OFFERED.items()) for version in versions]


def _name(each):
    return f"{each[0].name}-{each[1]}"


@pytest.mark.parametrize("served", SERVED, ids=_name)
def test_every_version_served_reads_and_writes_what_its_schema_says(served):
    api, version = served
    for schema, decode in ((SCHEMAS[api].request, decode_request), (SCHEMAS[api].response, decode_response)):
        for seed in range(5):
            data = SchemaEncoder(schema, version, RandomFill(random.Random(seed))).encode()
            message = decode(api, version, memoryview(data))
            message._header = None  # the library looks for it, and its decoder does not set it
            assert encode(message, version) == data


def _commit(metadata):
    request = messages.OffsetCommitRequest
    partition = request.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=metadata
    )
    topic = request.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return request(group_id="g", member_id="", group_instance_id=None, topics=[topic])


@pytest.mark.parametrize(
    ("api", "version", "message", "name"),
    [
        (ApiKey.OFFSET_COMMIT, 9, _commit, "committed_metadata in OffsetCommitRequestPartition"),
        (ApiKey.OFFSET_COMMIT, 7, _commit, "committed_metadata in OffsetCommitRequestPartition"),
        (ApiKey.DESCRIBE_GROUPS, 5, lambda text: messages.DescribeGroupsRequest(groups=["g", text]), "groups in"),
        (ApiKey.DELETE_GROUPS, 1, lambda text: messages.DeleteGroupsRequest(groups_names=[text]), "groups_names in"),
    ],
    ids=lambda each: str(each) if isinstance(each, int | str) else "",
)
def test_a_client_sends_no_string_for_which_a_broker_hangs_up(api, version, message, name):
    for text in ("x" * 0x7FFF, "é" * 0x3FFF):
        decode_request(api, version, memoryview(encode_request(message(text), version)))
    for text in ("x" * 0x8000, "é" * 0x4000):
        with pytest.raises(LocalProtocolError, match=f"{name}.* has 32768 bytes; a string has 32767 at most"):
            encode_request(message(text), version)


@pytest.mark.parametrize("served", SERVED, ids=_name)
def test_a_message_cut_short_anywhere_is_refused(served):
    api, version = served
    data = SchemaEncoder(SCHEMAS[api].request, version, RandomFill(random.Random(7))).encode()
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError, match="malformed"):
            decode_request(api, version, memoryview(data)[:size])


def test_tagged_fields_that_nobody_knows_are_passed_over():
    plain = encode(messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None), 4)
    unknown = uvarint(1) + uvarint(77) + uvarint(3) + b"\xff\xff\xff"
    assert plain.endswith(b"\0")
    decoded = decode_request(ApiKey.HEARTBEAT, 4, memoryview(plain[:-1] + unknown))
    assert (decoded.group_id, decoded.generation_id, decoded.member_id) == ("g", 1, "m")


def test_a_text_that_looks_like_an_endless_varint_is_still_a_text():
    text = "漢字かな" * 20
    sent = messages.HeartbeatRequest(group_id=text, generation_id=1, member_id="m", group_instance_id=None)
    assert decode_request(ApiKey.HEARTBEAT, 4, memoryview(encode(sent, 4))).group_id == text


def test_an_endless_varint_is_refused_at_once():
    # A decoder that followed it would need minutes: each byte makes the number longer.
    started = time.process_time()
    with pytest.raises(RemoteProtocolError, match="malformed"):
        decode_request(ApiKey.HEARTBEAT, 4, memoryview(b"\xff" * 4_000_000))
    assert time.process_time() - started < 5


def test_a_field_out_of_its_range_is_our_own_mistake():
    with pytest.raises(LocalProtocolError, match="cannot encode HeartbeatRequest version 1"):
        encode(messages.HeartbeatRequest(group_id="g", generation_id=1 << 40, member_id="m"), 1)


def test_flexible_versions_begin_where_the_schemas_say():
    assert [is_flexible(ApiKey.PRODUCE, version) for version in (8, 9)] == [False, True]
    assert [is_flexible(ApiKey.FETCH, version) for version in (11, 12)] == [False, True]
    assert [is_flexible(ApiKey.API_VERSIONS, version) for version in (2, 3)] == [False, True]
    assert is_flexible(ApiKey.METADATA, 99)
    assert not is_flexible(ApiKey.METADATA, -1)


def test_only_api_versions_answers_with_the_old_header():
    assert not messages.has_flexible_response_header(ApiKey.API_VERSIONS, 4)
    assert messages.has_flexible_response_header(ApiKey.METADATA, 9)
    assert not messages.has_flexible_response_header(ApiKey.METADATA, 8)


def test_no_version_is_offered_that_the_schemas_do_not_describe():
    for api, versions in OFFERED.items():
        assert versions.stop - 1 <= messages.highest_version(api)


def test_an_answer_is_read_as_the_class_that_its_request_names():
    asked = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    body = memoryview(encode(messages.HeartbeatResponse(throttle_time_ms=7, error_code=25), 4))
    answer = messages.decode_answer(asked, 4, body)
    assert type(answer) is messages.HeartbeatResponse
    assert (answer.throttle_time_ms, answer.error_code) == (7, 25)
    with pytest.raises(RemoteProtocolError, match="malformed HeartbeatResponse version 4"):
        messages.decode_answer(asked, 4, body[:3])


def test_a_null_within_a_structure_is_refused():
    cursor_without_a_name = b"\1\0\0\7\xd0" + b"\1" + b"\0" + b"\0\0\0\0\0" + b"\0"
    with pytest.raises(RemoteProtocolError, match="topic_name is null"):
        decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(cursor_without_a_name))
    without_cursor = decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(b"\1\0\0\7\xd0\xff\0"))
    assert without_cursor.cursor is None
