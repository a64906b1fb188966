"""Which answers ask for silence, and where they say so."""

from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.net.throttle import _FIRST_VERSIONS, throttle_seconds
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch, produce
from sparklog.protocol.hot.fetch import LeaderHint
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import SCHEMAS, ApiVersionsResponse, decode_response, encode
from sparklog.structs import BrokerId, Endpoint, LeaderEpoch, TopicPartition

_HINT = LeaderHint(BrokerId(1), LeaderEpoch(4), Endpoint("one", 9092))


def _answer(api, version, throttle_ms):
    """An answer of this API, as empty as it may be, that asks for this silence."""
    response = SCHEMAS[api].response
    fields = {"throttle_time_ms": throttle_ms}
    for field in response._struct.untagged_fields(version):
        if field.is_array() or field.name.endswith("authorized_operations"):
            fields[field.name] = []
        elif field.name == "assignment" and not field.is_struct():
            fields[field.name] = b""
        elif field.type_str == "string":
            fields[field.name] = ""
        elif field.name != "throttle_time_ms":
            fields[field.name] = None if field.is_struct() else 1
    if api is ApiKey.API_VERSIONS:
        fields["api_keys"] = [ApiVersionsResponse.ApiVersion(api_key=n, min_version=0, max_version=9) for n in (0, 1)]
    return memoryview(encode(response(**fields), version))


@pytest.mark.parametrize("api", [each for each in _FIRST_VERSIONS if each not in (ApiKey.PRODUCE, ApiKey.FETCH)])
def test_the_time_is_found_in_every_version_that_leaves_it_to_the_client(api):
    request: Any = SCHEMAS[api].request
    for version in range(request.min_version, request.max_version + 1):
        body = _answer(api, version, 1500)
        expected = 1.5 if version >= _FIRST_VERSIONS[api] else 0
        assert throttle_seconds(api, version, body) == expected
        if expected:
            decoded: Any = decode_response(api, version, body)
            assert decoded.throttle_time_ms == 1500


@pytest.mark.parametrize("leader", [None, _HINT])
@pytest.mark.parametrize("version", range(3, produce.MAX_VERSION + 1))
def test_of_a_produce_it_stands_behind_the_results(version, leader):
    results = {
        TopicPartition("t", 0): ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="moved", leader=leader),
        TopicPartition("u", 3): ProduceResult(ErrorCode.NONE, 12, refused_records=(1, 2)),
    }
    for throttle_ms in (0, 1, 1500):
        body = memoryview(b"".join(produce.encode_response(results, version, throttle_ms)))
        assert throttle_seconds(ApiKey.PRODUCE, version, body) == (throttle_ms / 1000 if version >= 6 else 0)


@pytest.mark.parametrize("version", [4, 7, 8, 12, fetch.MAX_VERSION])
def test_of_a_fetch_it_comes_first(version):
    body = memoryview((1500).to_bytes(4, "big") + bytes(20))
    assert throttle_seconds(ApiKey.FETCH, version, body) == (1.5 if version >= 8 else 0)


@pytest.mark.parametrize("api", [ApiKey.HEARTBEAT, ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.OFFSET_DELETE])
def test_a_malformed_answer_asks_for_nothing(api):
    for body in (b"", b"\0\1", b"\x7f\xff\xff\xff\xff"[:3]):
        assert throttle_seconds(api, _FIRST_VERSIONS[api], memoryview(body)) == 0


def test_a_negative_time_is_none():
    assert throttle_seconds(ApiKey.HEARTBEAT, 2, memoryview(b"\xff\xff\xff\xff\0\0")) == 0
    assert throttle_seconds(ApiKey.SASL_HANDSHAKE, 0, memoryview(b"\0\0\1\0")) == 0
