"""The asking end on a loop: one request at a time, and no connection outlives a failure."""

import asyncio
import contextlib
import socket
from queue import Queue
from typing import Any

import pytest
from net.listening import IMPOSSIBLE

from sparklog.errors import ConnectionFailed, RemoteProtocolError
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse, encode
from sparklog.structs import Endpoint
from sparklog.testing.clock import jump


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
            await connection.request(ApiKey.HEARTBEAT, heartbeat)
        return connection.closed

    assert asyncio.run(ask())


def test_an_answer_that_does_not_come_in_time_closes_the_connection(peer):
    peer.reply = lambda request: b"\0\0\0"

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        await connection.versions()
        with pytest.raises(ConnectionFailed, match="did not answer HEARTBEAT: timed out"):
            await connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=0.05)
        return connection.closed

    assert asyncio.run(ask())


def test_nobody_there():
    with pytest.raises(ConnectionFailed, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        asyncio.run(AsyncConnection.open(Endpoint("127.0.0.1", 1)))


@pytest.mark.parametrize("address", IMPOSSIBLE)
def test_an_address_that_cannot_be_one(address):
    with pytest.raises(ConnectionFailed, match="cannot reach a broker at"):
        asyncio.run(AsyncConnection.open(Endpoint(*address)))


def test_requests_do_not_wait_for_one_another(peer):
    """The peer answers the first only when it has read the third."""
    waiting = []

    def reply(request):
        waiting.append(request)
        if len(waiting) < 3:
            return b""
        message = HeartbeatResponse(throttle_time_ms=0, error_code=7)
        return b"".join(peer.framed(each, encode(message, each.version)) for each in waiting)

    peer.reply = reply

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        try:
            asked = await asyncio.gather(*(connection.request(ApiKey.HEARTBEAT, heartbeat) for _ in range(3)))
            assert connection.in_flight == 0
            return asked
        finally:
            connection.close()

    assert [each.error_code for each in asyncio.run(ask())] == [7, 7, 7]


def test_who_stops_waiting_does_not_disturb_the_others(peer):
    waiting = []

    def reply(request):
        waiting.append(request)
        if len(waiting) < 2:
            return b""
        codes = (1, 2)
        bodies = [encode(HeartbeatResponse(throttle_time_ms=0, error_code=code), waiting[0].version) for code in codes]
        return b"".join(map(peer.framed, waiting, bodies))

    peer.reply = reply

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        await connection.versions()
        first = asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat))
        while not connection.in_flight:
            await asyncio.sleep(0)
        first.cancel()
        answer = await connection.request(ApiKey.HEARTBEAT, heartbeat)
        connection.close()
        return answer.error_code

    assert asyncio.run(ask()) == 2


def test_one_that_waits_too_long_ends_all(peer):
    peer.reply = lambda request: b""

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        await connection.versions()
        short, long = (connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=seconds) for seconds in (0.05, 30))
        failures = await asyncio.gather(long, short, return_exceptions=True)
        assert connection.closed
        with pytest.raises(ConnectionFailed):
            await connection.request(ApiKey.HEARTBEAT, heartbeat)
        return [str(each) for each in failures]

    assert all(text.endswith("did not answer HEARTBEAT: timed out") for text in asyncio.run(ask()))


def test_a_requests_time_begins_anew_with_each_answer_before_its_own(peer):
    """The peer takes one request after another, each for longer than half a request's time."""
    turns: Queue[int] = Queue()
    peer.reply = lambda request: answer_with(peer, turns.get())(request)

    async def ask():
        loop = asyncio.get_running_loop()
        connection = await AsyncConnection.open(peer.endpoint)
        await connection.versions()
        asked = [asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=20)) for _ in range(3)]
        while connection.in_flight < 3:
            await asyncio.sleep(0)
        answers = []
        for turn in (1, 2):
            await passed(loop, 15)
            turns.put(turn)
            answers.append((await asked[turn - 1]).error_code)
        await passed(loop, 25)
        assert connection.closed, "the third has waited alone for longer than its time"
        turns.put(3)
        with pytest.raises(ConnectionFailed, match="did not answer HEARTBEAT: timed out"):
            await asked[2]
        return answers

    async def passed(loop, seconds):
        jump(loop, seconds)
        for _ in range(3):  # turns of the loop: timers that are due have gone off
            await asyncio.sleep(0)

    try:
        assert asyncio.run(ask()) == [1, 2]
    finally:
        for _ in range(3):  # the peer waits for nothing more
            turns.put(3)


def test_a_timer_that_stands_for_an_answered_request_ends_nothing_before_its_time(peer):
    peer.reply = answer_with(peer, 0)

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        await connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=20)
        peer.reply = lambda request: b""
        later = asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=30))
        while not connection.in_flight:
            await asyncio.sleep(0)
        timer = connection._timer
        timer.cancel()
        connection._end_late(timer.when())
        assert connection._timer.when() > timer.when()
        assert not connection.closed
        connection.close()
        assert connection._timer is None
        with pytest.raises(ConnectionFailed):
            await later

    asyncio.run(ask())


def test_who_fails_at_an_answer_fails_alone(peer):
    peer.reply = answer_with(peer, 0, 0)

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        version = (await connection.versions()).best(ApiKey.HEARTBEAT)
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        connection.ask(ApiKey.HEARTBEAT, version, [encode(heartbeat(version), version)], [].remove)
        answer = await connection.request(ApiKey.HEARTBEAT, heartbeat)
        connection.close()
        assert [type(each) for each in failures] == [ValueError]
        return answer.error_code

    assert asyncio.run(ask()) == 0


def test_who_closes_at_an_answer_gets_no_other(peer):
    waiting = []

    def reply(request):
        waiting.append(request)
        body = encode(HeartbeatResponse(throttle_time_ms=0, error_code=0), request.version)
        return b"".join(peer.framed(each, body) for each in waiting) if len(waiting) == 2 else b""

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        version = (await connection.versions()).best(ApiKey.HEARTBEAT)
        peer.reply = reply
        answers = []

        def told(answer):
            answers.append(answer)
            connection.close()

        for _ in range(2):
            connection.ask(ApiKey.HEARTBEAT, version, [encode(heartbeat(version), version)], told)
        while len(answers) < 2:
            await asyncio.sleep(0)
        assert isinstance(answers[0], memoryview)
        assert isinstance(answers[1], ConnectionFailed)

    asyncio.run(ask())


def test_a_request_without_an_answer_is_done_when_it_is_written(peer):
    peer.reply = lambda request: b""

    async def ask():
        connection = await AsyncConnection.open(peer.endpoint)
        body = bytes(32 << 20)  # more than the socket takes at once
        done = await connection.submit(ApiKey.PRODUCE, 3, [body], expect_response=False)
        assert connection._transport.get_write_buffer_size() == 0
        connection.close()
        return done

    assert asyncio.run(ask()) == b""


@contextlib.asynccontextmanager
async def deaf_peer():
    """A connection to one that reads nothing, and its socket, from which a test may read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = await AsyncConnection.open(Endpoint(*listener.getsockname()))
        peer, _ = listener.accept()
        with peer:
            peer.setblocking(False)
            try:
                yield connection, peer
            finally:
                connection.abort()


def unanswered(connection, seconds):
    """More than the socket takes at once."""
    return connection.submit(ApiKey.PRODUCE, 3, [bytes(32 << 20)], timeout=seconds, expect_response=False)


def test_what_wants_no_answer_fails_in_time_where_the_peer_reads_nothing():
    async def test():
        async with deaf_peer() as (connection, _), asyncio.timeout(30):
            failures = await asyncio.gather(*(unanswered(connection, 0.05) for _ in range(2)), return_exceptions=True)
            assert connection.closed
            assert [str(each).partition(" did ")[2] for each in failures] == ["not answer PRODUCE: timed out"] * 2

    asyncio.run(test())


def test_the_time_of_what_wants_no_answer_begins_anew_when_those_before_it_are_written():
    async def test():
        loop = asyncio.get_running_loop()
        async with deaf_peer() as (connection, peer), asyncio.timeout(600):
            first, second = (unanswered(connection, 20) for _ in range(2))
            jump(loop, 15)
            while not first.done():
                await loop.sock_recv(peer, 1 << 20)
            jump(loop, 15)
            await asyncio.sleep(0.05)
            assert not connection.closed
            jump(loop, 25)
            with pytest.raises(ConnectionFailed, match="timed out"):
                await second
            assert await first == b""

    asyncio.run(test())


class Recording:
    """A transport that keeps what it is given."""

    def __init__(self):
        self.written = []

    def is_closing(self):
        return False

    def write(self, data):
        self.written.append(data)

    def get_write_buffer_size(self):
        return 0


def test_small_pieces_of_a_request_go_out_in_one_and_large_ones_uncopied(peer):
    async def written(body):
        connection = await AsyncConnection.open(peer.endpoint)
        recording: Any = Recording()
        socket, connection._transport = connection._transport, recording
        answer = connection.submit(ApiKey.PRODUCE, 3, body)
        connection._transport = socket
        connection.close()
        with pytest.raises(ConnectionFailed):
            await answer
        return recording.written

    (whole,) = asyncio.run(written([b"some", bytearray(b"small"), memoryview(b"pieces")]))
    assert whole.endswith(b"somesmallpieces")
    large = bytearray(1 << 20)
    head, middle, tail = asyncio.run(written([b"some", large, b"small", b"pieces"]))
    assert head.endswith(b"some")
    assert middle is large
    assert tail == b"smallpieces"


def test_requests_that_are_held_go_out_together_and_in_order(peer):
    async def written():
        connection = await AsyncConnection.open(peer.endpoint)
        recording: Any = Recording()
        socket, connection._transport = connection._transport, recording
        connection.hold()
        answers = [connection.submit(ApiKey.PRODUCE, 3, [each]) for each in (b"first", b"second")]
        assert recording.written == []
        connection.let_go()
        connection.hold()
        answers.append(connection.submit(ApiKey.PRODUCE, 3, [b"third"]))
        await connection.submit(ApiKey.PRODUCE, 3, [b"unanswered"], expect_response=False)
        connection._transport = socket
        connection.close()
        connection.let_go()
        await asyncio.gather(*answers, return_exceptions=True)
        return recording.written

    together, rest = asyncio.run(written())
    assert together.index(b"first") < together.index(b"second")
    assert rest.index(b"third") < rest.index(b"unanswered")


def test_an_aborted_connection_lets_go_of_its_socket_though_the_peer_reads_nothing():
    async def test():
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            connection = await AsyncConnection.open(Endpoint(*deaf.getsockname()))
            peer, _ = deaf.accept()
            with peer:
                sock = connection._transport.get_extra_info("socket")
                answer = connection.submit(ApiKey.PRODUCE, 3, [bytes(64 << 20)])
                connection.close()
                await asyncio.sleep(0)
                assert sock.fileno() >= 0, "what is written still goes out"
                connection.abort()
                await asyncio.sleep(0)
                assert sock.fileno() < 0
                with pytest.raises(ConnectionFailed, match="closed"):
                    await answer

    asyncio.run(test())


def throttling(peer, *seconds):
    """Heartbeats that are answered with these times of silence, then without."""
    left = list(seconds)

    def reply(request):
        message = HeartbeatResponse(throttle_time_ms=left.pop(0) * 1000 if left else 0, error_code=0)
        return peer.framed(request, encode(message, request.version))

    return reply


async def _silent(peer, *seconds):
    """A connection on which nothing may be sent for so many seconds."""
    peer.reply = throttling(peer, *seconds)
    connection = await AsyncConnection.open(peer.endpoint)
    await connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert 0 < connection.silent_seconds <= seconds[0]
    return connection


def test_nothing_is_sent_while_the_broker_wants_silence_and_that_time_is_not_the_requests(peer):
    async def test():
        loop = asyncio.get_running_loop()
        connection = await _silent(peer, 60)
        asked = [asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat, timeout=50)) for _ in range(2)]
        await asyncio.sleep(0)
        jump(loop, 55)
        await asyncio.sleep(0)
        assert connection.silent_seconds > 0
        assert connection.in_flight == 2
        assert len(peer.requests) == 2
        jump(loop, 6)
        assert [each.error_code for each in await asyncio.gather(*asked)] == [0, 0]
        assert connection.silent_seconds == 0
        connection.close()

    asyncio.run(test())


def test_a_silence_is_made_longer_and_never_shorter(peer):
    async def test():
        connection = await AsyncConnection.open(peer.endpoint)
        peer.reply = throttling(peer, 60, 10)
        await asyncio.gather(*(connection.request(ApiKey.HEARTBEAT, heartbeat) for _ in range(2)))
        assert connection.silent_seconds > 10
        connection.close()

    asyncio.run(test())


def test_what_is_cancelled_in_a_silence_is_not_sent(peer):
    async def test():
        connection = await _silent(peer, 60)
        cancelled = asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat))
        other = asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat, ceiling=1))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        jump(asyncio.get_running_loop(), 61)
        await other
        assert [each.version for each in peer.requests] == [3, 3, 1]
        connection.close()

    asyncio.run(test())


def test_each_time_of_silence_is_told(peer):
    async def test():
        told = []
        peer.reply = throttling(peer, 60, 10)
        connection = await AsyncConnection.open(peer.endpoint, throttled=told.append)
        await asyncio.gather(*(connection.request(ApiKey.HEARTBEAT, heartbeat) for _ in range(2)))
        assert told == [60, 10]
        connection.close()

    asyncio.run(test())


def test_a_connection_is_closed_in_a_silence(peer):
    async def test():
        connection = await _silent(peer, 60)
        asked = asyncio.create_task(connection.request(ApiKey.HEARTBEAT, heartbeat))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectionFailed, match="did not answer HEARTBEAT: it was closed"):
            await asked
        assert connection.silent_seconds == connection.in_flight == 0

    asyncio.run(test())
