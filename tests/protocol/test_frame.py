"""Frames out of a stream, however the stream is cut."""

import os
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import AnotherProtocol, RemoteProtocolError
from sparklog.protocol.frame import AT_ONCE, GROWTH, SCRATCH_SIZE, FrameReader

LIMIT = 4 * SCRATCH_SIZE
SIZES = st.sampled_from([0, 1, 3, 4, 5, SCRATCH_SIZE - 5, SCRATCH_SIZE - 4, SCRATCH_SIZE - 3, SCRATCH_SIZE, LIMIT])


def stream_of(payloads):
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def feed(reader, data, steps):
    """Put ``data`` into the reader, at most so many bytes at a time, in turn; what came out."""
    frames, position = [], 0
    while position < len(data):
        for step in steps:
            space = reader.buffer()
            piece = data[position : position + min(step, len(space))]
            space[: len(piece)] = piece
            del space
            position += len(piece)
            frames.extend(reader.received(len(piece)))
    return frames


@settings(deadline=None)
@given(
    sizes=st.lists(SIZES | st.integers(0, 300), max_size=12),
    steps=st.lists(st.sampled_from([1, 2, 3, 5, 4095, SCRATCH_SIZE, 1 << 20]), min_size=1, max_size=6).filter(
        lambda steps: max(steps) > 3
    ),
)
def test_every_cutting_of_a_stream_gives_the_same_frames(sizes, steps):
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    reader = FrameReader(LIMIT)
    assert [bytes(frame) for frame in feed(reader, stream_of(payloads), steps)] == payloads
    assert not reader.in_frame


@given(payloads=st.lists(st.binary(max_size=40), max_size=6))
def test_byte_by_byte(payloads):
    assert feed(FrameReader(100), stream_of(payloads), [1]) == payloads


def test_a_frame_is_the_receivers_own():
    reader = FrameReader(LIMIT)
    (first,) = feed(reader, stream_of([b"first"]), [100])
    feed(reader, stream_of([b"other" * 100]), [1000])
    assert bytes(first) == b"first"
    first[:] = b"FIRST"


@pytest.mark.parametrize("payload", [b"", b"x" * (SCRATCH_SIZE - 4), b"x" * SCRATCH_SIZE, b"x" * LIMIT])
def test_the_middle_of_a_frame_is_known(payload):
    data = stream_of([payload])
    reader = FrameReader(LIMIT)
    assert not reader.in_frame
    assert feed(reader, data[:-1], [1 << 20]) == []
    assert reader.in_frame
    assert feed(reader, data[-1:], [1]) == [payload]
    assert not reader.in_frame


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused(size):
    with pytest.raises(RemoteProtocolError, match=f"a frame claims {size} bytes; 0 to 100 are allowed"):
        feed(FrameReader(100), size.to_bytes(4, "big", signed=True), [4])


@pytest.mark.parametrize("version", [b"\x03\x00", b"\x03\x01", b"\x03\x03"])
def test_a_client_hello_is_answered_with_an_alert(version):
    with pytest.raises(AnotherProtocol, match="it speaks TLS") as caught:
        feed(FrameReader(100 << 20), b"\x16" + version + b"\x02\0\x01\0\x01\xfc\x03\x03", [64])
    assert caught.value.answer == b"\x15\x03\x01\x00\x02\x02\x28"


@pytest.mark.parametrize(
    "request_line", [b"GET / HTTP/1.1", b"POST /x HTTP/1.1", b"PRI * HTTP/2.0", b"DELETE /x HTTP/1.0"]
)
def test_http_is_answered_with_a_400(request_line):
    with pytest.raises(AnotherProtocol, match="it speaks HTTP") as caught:
        feed(FrameReader(100 << 20), request_line + b"\r\n\r\n", [64])
    head, _, body = caught.value.answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.splitlines()


def test_frames_before_a_bad_length_are_given():
    reader = FrameReader(100)
    data = stream_of([b"good"]) + b"\xff\xff\xff\xff"
    reader.buffer()[: len(data)] = data
    frames = reader.received(len(data))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(RemoteProtocolError):
        next(frames)


def test_a_length_above_the_limit_makes_no_buffer():
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            feed(FrameReader(1 << 20), (1 << 30).to_bytes(4, "big"), [4])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_claim_takes_no_more_memory_than_what_was_sent():
    reader = FrameReader(1 << 30)
    tracemalloc.start()
    try:
        feed(reader, (1 << 30).to_bytes(4, "big") + b"x" * 1000, (1 << 20,))
        assert tracemalloc.get_traced_memory()[0] < AT_ONCE + (1 << 16)
        assert reader.body_bytes == 1000
    finally:
        tracemalloc.stop()


def test_a_frame_that_grows_is_whole():
    payload = os.urandom(5 * AT_ONCE + 77)
    reader = FrameReader(1 << 30)
    assert [bytes(each) for each in feed(reader, len(payload).to_bytes(4, "big") + payload, (1 << 20,))] == [payload]
    assert reader.body_bytes is None


def test_a_large_frame_grows_by_a_little_at_a_time():
    """To double a buffer of 48 MB held up all others for 60 ms."""
    size = 3 * GROWTH + AT_ONCE
    reader = FrameReader(1 << 30)
    data = size.to_bytes(4, "big") + bytes(size)
    rooms, position = [], 0
    while position < len(data):
        space = reader.buffer()
        rooms.append(len(space))
        piece = data[position : position + len(space)]
        space[: len(piece)] = piece
        del space
        position += len(piece)
        frames = list(reader.received(len(piece)))
    assert max(rooms) == GROWTH
    assert [len(each) for each in frames] == [size]


def test_a_frame_that_was_asked_for_is_received_in_place():
    payload = os.urandom(5 * AT_ONCE)
    stream = len(payload).to_bytes(4, "big") + payload
    reader = FrameReader(1 << 30, at_once=len(payload))
    tracemalloc.start()
    try:
        (frame,) = feed(reader, stream, (1 << 16,))
        assert frame == payload
        assert tracemalloc.get_traced_memory()[1] < len(payload) + AT_ONCE
    finally:
        tracemalloc.stop()
