"""The asking end on a loop: one request at a time, and no connection outlives a failure."""

import asyncio

import pytest

from sparklog.errors import ConnectionFailed, RemoteProtocolError
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse, encode
from sparklog.structs import Endpoint


def heartbeat(_version):
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def answer_with(peer, *errors):
    codes = iter(errors)

    def reply(request):
        message = HeartbeatResponse(throttle_time_ms=0, error_code=next(codes))
        return peer.framed(request, encode(message, request.version))

    return reply


def test_requests_made_at_once_take_their_turns(peer):
    peer.reply = answer_with(peer, 1, 2, 3)

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        try:
            return await asyncio.gather(*(connection.request(ApiKey.HEARTBEAT, heartbeat) for _ in range(3)))
        finally:
            connection.close()

    assert [each.error_code for each in asyncio.run(ask())] == [1, 2, 3]
    assert [each.api for each in peer.requests] == [18, 12, 12, 12]


@pytest.mark.parametrize(
    ("data", "error", "complaint"),
    [
        (None, ConnectionFailed, "did not answer HEARTBEAT"),
        (b"\0\0\0", ConnectionFailed, "did not answer HEARTBEAT: timed out"),
        (b"HTTP/1.1 400", RemoteProtocolError, "Kafka listener"),
        (b"\0\0\0\x06\0\0\0\x63\0\0", RemoteProtocolError, "response 99 came where 1 was due"),
        (b"\0\0\0\x05\0\0\0\x01\0", RemoteProtocolError, "malformed"),
    ],
)
def test_a_failure_closes_the_connection(peer, data, error, complaint):
    peer.reply = lambda request: data

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        with pytest.raises(error, match=complaint):
            await connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=0.3)
        return connection.closed

    assert asyncio.run(ask())


def test_nobody_there():
    with pytest.raises(ConnectionFailed, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        asyncio.run(AsyncConnection.open(Endpoint("127.0.0.1", 1)))
