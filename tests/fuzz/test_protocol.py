"""Bytes that no client should send: only RemoteProtocolError comes of them, soon, and without much memory."""

import random
import time
import tracemalloc

import pytest
from protocol.schema_bytes import RandomFill, SchemaEncoder

from sparklog.broker.registry import HANDLERS
from sparklog.errors import RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import parse_request
from sparklog.protocol.frame import FrameReader
from sparklog.protocol.hot import fetch
from sparklog.protocol.messages import SCHEMAS, decode_response

pytestmark = pytest.mark.fuzz

SERVED = [(handler, version) for handler in HANDLERS.values() for version in handler.versions]
TRIES = 150
MANY = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff", b"\0")


def mutated(data, chance):
    """``data`` with one to four of: a byte changed, a run replaced, cut, doubled; a length blown up."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        position = chance.randrange(len(out) + 1)
        match chance.randrange(5):
            case 0:
                out[position : position + 1] = bytes([chance.getrandbits(8)])
            case 1:
                out[position : position + chance.randrange(8)] = chance.randbytes(chance.randrange(8))
            case 2:
                del out[position:]
            case 3:
                out[position:position] = out[: chance.randrange(64)]
            case _:
                huge = chance.choice(MANY)
                out[position : position + len(huge)] = huge
    return memoryview(bytes(out))


def refused_or_read(decode, data):
    try:
        decode(data)
    except RemoteProtocolError:
        return True
    return False


@pytest.mark.parametrize("served", SERVED, ids=lambda each: f"{each[0].api.name}-{each[1]}")
def test_mutated_requests_and_responses(served):
    handler, version = served
    chance = random.Random(f"{handler.api}/{version}")
    request = SchemaEncoder(SCHEMAS[handler.api].request, version, RandomFill(chance)).encode()
    response = SchemaEncoder(SCHEMAS[handler.api].response, version, RandomFill(chance)).encode()
    refused = 0
    for _ in range(TRIES):
        refused += refused_or_read(lambda data: handler.decode(data, version), mutated(request, chance))
        refused_or_read(lambda data: decode_response(handler.api, version, data), mutated(response, chance))
    assert refused or not request, "no mutation broke anything; is the corpus empty?"


def test_mutated_fetch_responses_by_the_client():
    chance = random.Random(3)
    for version in range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1):
        data = SchemaEncoder(SCHEMAS[ApiKey.FETCH].response, version, RandomFill(chance)).encode()
        for _ in range(TRIES):
            refused_or_read(lambda data: fetch.decode_response(data, version), mutated(data, chance))  # noqa: B023


def test_random_bytes_as_requests():
    chance = random.Random(5)
    for _ in range(5000):
        data = memoryview(chance.randbytes(chance.randrange(80)))
        if not refused_or_read(parse_request, data):
            request = parse_request(data)
            handler = HANDLERS.get(request.api)
            if handler is not None and request.version in handler.versions:
                refused_or_read(lambda _, r=request, h=handler: h.decode(r.body, r.version), data)


@pytest.mark.parametrize("served", SERVED, ids=lambda each: f"{each[0].api.name}-{each[1]}")
@pytest.mark.parametrize("fill", [b"\xff", b"\x7f", b"\x80", b"\0", b"\x01"])
def test_monotonous_bytes_cost_little(served, fill):
    handler, version = served
    body = memoryview(fill * 2000)
    tracemalloc.start()
    started = time.process_time()
    try:
        refused_or_read(lambda data: handler.decode(data, version), body)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 5


def fed_until_refused(reader, chance):
    while True:
        space = reader.buffer()
        piece = chance.randbytes(chance.randrange(1, 200))[: len(space)]
        if chance.random() < 0.7:
            piece = b"\0\0\0" + piece
        space[: len(piece)] = piece
        assert all(len(frame) <= 1000 for frame in reader.received(len(piece)))


def test_random_streams_through_the_frame_reader():
    chance = random.Random(11)
    for _ in range(300):
        with pytest.raises(RemoteProtocolError, match="a frame claims"):
            fed_until_refused(FrameReader(1000), chance)
