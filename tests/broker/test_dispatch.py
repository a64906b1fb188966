"""From frame to frame: who is answered, in which version, and who is hung up on."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.dispatch import Dispatcher
from sparklog.broker.registry import HANDLERS, OFFERED, Handler
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import (
    ApiVersionsRequest,
    Encoded,
    SaslHandshakeResponse,
    decode_response,
    encode,
    throttled,
)
from sparklog.security.caller import Caller
from sparklog.testing.clock import ManualClock


@pytest.fixture
def dispatch():
    loop = asyncio.new_event_loop()
    yield Dispatcher(SimpleNamespace(offered=OFFERED, quotas=ClientQuotas(BrokerConfig(), ManualClock())), Turns(loop))
    loop.close()


def frame(api, version, body=b""):
    return memoryview(b"".join(ClientConnection("me").request(api, version, [body])))[4:]


def unframed(answer):
    data = b"".join(answer)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return memoryview(data)[4:]


def hello(version, name="x", release="1"):
    return encode(ApiVersionsRequest(client_software_name=name, client_software_version=release), version)


@pytest.mark.parametrize("version", OFFERED[ApiKey.API_VERSIONS])
def test_what_is_offered_is_what_is_served(dispatch, version):
    answer = unframed(dispatch(frame(ApiKey.API_VERSIONS, version, hello(version)), Caller("h")))
    response = decode_response(ApiKey.API_VERSIONS, version, answer[4:])
    assert response.error_code == 0
    offered = {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}
    assert offered == {handler.api: handler.versions for handler in HANDLERS.values()}


@pytest.mark.parametrize("version", [3, 4])
def test_the_features_in_force_are_told(dispatch, version):
    answer = unframed(dispatch(frame(ApiKey.API_VERSIONS, version, hello(version)), Caller("h")))
    response = decode_response(ApiKey.API_VERSIONS, version, answer[4:])
    in_force = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features or ()}
    assert in_force["group.version"] == (1, 1)
    assert response.finalized_features_epoch == 0
    assert supported == ({name: (0, highest) for name, (_, highest) in in_force.items()} if version == 4 else {})


def greeted(dispatch, version, *names):
    answer = unframed(dispatch(frame(ApiKey.API_VERSIONS, version, hello(version, *names)), Caller("h")))
    return decode_response(ApiKey.API_VERSIONS, version, answer[4:])


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("bad", ["", "a b", "-", "a-", ".a", "ä", "a\n", "1+2"])
def test_who_calls_itself_what_nobody_may_is_offered_nothing(dispatch, version, bad):
    for names in ((bad, "1"), ("x", bad)):
        response = greeted(dispatch, version, *names)
        assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
        assert (response.finalized_features_epoch, response.finalized_features) == (-1, [])


def test_what_clients_may_call_themselves(dispatch):
    names = (
        ("x", "1"),
        ("confluent-kafka-python", "2.16.0-rdkafka-2.16.0"),
        ("apache-kafka-java", "4.1.1"),
        ("a.b", "9"),
    )
    assert {greeted(dispatch, 4, *each).error_code for each in names} == {ErrorCode.NONE}
    assert greeted(dispatch, 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_is_answered_whatever_its_version(dispatch, version):
    data = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x2a\0\x02me\0????"
    answer = unframed(dispatch(memoryview(data), Caller("h")))
    assert int.from_bytes(answer[:4], "big") == 42
    response = decode_response(ApiKey.API_VERSIONS, 0, answer[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(response.api_keys) == len(OFFERED)


@pytest.mark.parametrize(("api", "version"), [(api, range_.stop) for api, range_ in OFFERED.items() if api != 18])
def test_a_version_that_is_not_served_ends_the_connection(dispatch, api, version):
    with pytest.raises(RemoteProtocolError, match=rf"'me' asks for {api.name} version {version}; .* are served"):
        dispatch(memoryview(struct.pack(">hh", api, version) + b"\0\0\0\x01\0\x02me\0"), Caller("h"))


@pytest.mark.parametrize("api", [71, 72, 999, -1])
def test_an_api_that_is_not_served_ends_the_connection(dispatch, api):
    with pytest.raises(RemoteProtocolError, match=rf"asks for API {api}, which is not served"):
        dispatch(memoryview(api.to_bytes(2, "big", signed=True) + b"\0\0\0\0\0\x01\0\x02me"), Caller("h"))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x12\0\0\0\0", b"\0\x03\0\x01\0\0\0\1\xff\xff\0\0\0\5"])
def test_a_malformed_request_ends_the_connection(dispatch, data):
    with pytest.raises(RemoteProtocolError):
        dispatch(memoryview(data), Caller("h"))


@pytest.mark.parametrize("answer", [b"body", None])
@pytest.mark.parametrize("waits", [True, False])
def test_an_answer_may_come_later_or_not_at_all(monkeypatch, answer, waits):
    """What waits for nothing is answered at once."""

    async def later(broker, request):
        if waits:
            await asyncio.sleep(0)
        return answer

    def encode_plain(message, version, throttle_ms):
        return None if message is None else [message]

    handler = Handler(
        ApiKey.METADATA, range(0, 1), lambda body, version: bytes(body), later, encode_plain, module="test"
    )
    monkeypatch.setitem(HANDLERS, ApiKey.METADATA, handler)

    async def ask():
        quotas = ClientQuotas(BrokerConfig(), ManualClock())
        served = Dispatcher(SimpleNamespace(quotas=quotas), Turns(asyncio.get_running_loop()))(
            frame(ApiKey.METADATA, 0), Caller("h")
        )
        assert isinstance(served, asyncio.Future) == waits
        return await served if waits else served

    given = asyncio.run(ask())
    assert given is None if answer is None else bytes(unframed(given)) == b"\0\0\0\0body"


class Muted:
    """A connection that remembers for how long it was muted."""

    def __init__(self):
        self.seconds = []

    def mute(self, seconds):
        self.seconds.append(seconds)


def test_an_answer_over_the_quota_tells_how_long_to_wait_and_the_connection_is_muted():
    loop, clock, muted = asyncio.new_event_loop(), ManualClock(), Muted()
    quotas = ClientQuotas(BrokerConfig(), clock)
    dispatch = Dispatcher(SimpleNamespace(offered=OFFERED, quotas=quotas), Turns(loop, clock))
    caller = Caller("h", connection=muted)
    quotas.take_over("clients/me", {"request_percentage": "1"})
    waits = []
    for spent_s in (0.0, 0.2, 0.0):
        caller.busy_s += spent_s
        answer = unframed(dispatch(frame(ApiKey.API_VERSIONS, 3, hello(3)), caller))
        waits.append(decode_response(ApiKey.API_VERSIONS, 3, answer[4:]).throttle_time_ms)
    loop.close()
    assert waits == [0, 1000, 1000]
    assert muted.seconds == [1.0, 1.0]


def test_an_answer_that_is_encoded_already_tells_it_where_it_has_room_for_it():
    body = Encoded(b"\0\0\0\0rest", throttled_from=3)
    assert throttled(body, 3, 258) == Encoded(b"\0\0\1\2rest", 3)
    assert throttled(body, 2, 258) is body


def test_an_answer_that_cannot_tell_it_stays_as_it_is():
    answer = SaslHandshakeResponse(error_code=0)
    assert throttled(answer, 1, 258) is answer
