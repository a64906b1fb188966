"""Batches whose CRC is right and whose records cannot be read, by name."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam
import crc32c

from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType, compress
from sparklog.record.varint import write_varint

CODECS = list(CompressionType)[1:]
MANY = 2**31 - 1


ACCEPTED_BY_KAFKA = frozenset(
    {
        "offsets that stand still, none",
        "an offset beyond its batch, none",
        "an offset before its batch, none",
        "gzip and garbage behind it",
        "lz4 and garbage behind it",
    }
)
"""By Kafka 3.9.1, which answers INVALID_RECORD or UNKNOWN_SERVER_ERROR to the others."""


class Poison(NamedTuple):
    """One batch."""

    name: str
    data: bytearray


def batch(payload: bytes, codec: CompressionType = CompressionType.NONE, count: int = 1) -> bytearray:
    """A batch that says it holds ``count`` records as ``codec``, whatever ``payload`` is; all else is in order."""
    data = bytearray(RecordBatchBuilder().build()[: layout.HEADER_SIZE]) + payload
    layout.INT32.pack_into(data, layout.LENGTH, len(data) - layout.LOG_OVERHEAD)
    layout.INT16.pack_into(data, layout.ATTRIBUTES, codec)
    layout.INT32.pack_into(data, layout.LAST_OFFSET_DELTA, count - 1)
    layout.INT32.pack_into(data, layout.RECORD_COUNT, count)
    layout.INT64.pack_into(data, layout.BASE_TIMESTAMP, 1)
    layout.INT64.pack_into(data, layout.MAX_TIMESTAMP, 1)
    seal(data)
    return data


def seal(data: bytearray) -> None:
    """Make the CRC right again."""
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES :]))


def records(count: int, value: bytes = b"a value of some length") -> bytes:
    """The section of ``count`` good records."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1, b"key", value)
    return bytes(RecordBatch(builder.build()).payload)


def varints(*values: int) -> bytes:
    out = bytearray()
    for value in values:
        write_varint(out, value)
    return bytes(out)


def record(body: bytes) -> bytes:
    return varints(len(body)) + body


_PREFIX = b"\0" + varints(0, 0)


def malformed() -> Iterator[tuple[str, bytes, int]]:
    """Sections that no codec makes good: name, bytes, record count."""
    yield "garbage", bytes(range(200, 256)), 1
    yield "zeros", bytes(56), 8
    yield "fewer records than it says", records(7), 8
    yield "more records than it says", records(9), 8
    yield "bytes behind the last record", records(8) + b"\0" * 9, 8
    yield "a record cut short", records(8)[:-3], 8
    yield "a record of negative length", varints(-5) + bytes(20), 1
    yield "a record of 2 GiB", varints(MANY) + bytes(20), 1
    yield "an endless varint", b"\xff" * 20, 1
    yield "a key beyond its record", record(_PREFIX + varints(50) + b"k" + varints(-1, 0)) + records(1), 2
    yield "a value beyond its record", record(_PREFIX + varints(-1, 50) + b"v" + varints(0)) + records(1), 2
    yield "a negative header count", record(_PREFIX + varints(-1, -1, -3)), 1
    yield "more headers than bytes", record(_PREFIX + varints(-1, -1, MANY)), 1
    yield "a header without a key", record(_PREFIX + varints(-1, -1, 1, -1, -1)), 1
    yield "a header beyond its record", record(_PREFIX + varints(-1, -1, 1, 9) + b"h" + varints(-1)) + records(1), 2
    yield "a record longer than its fields", record(_PREFIX + varints(-1, -1, 0) + bytes(3)), 1
    yield "offsets that stand still", record(_PREFIX + varints(-1, -1, 0)) * 2, 2
    yield "an offset beyond its batch", record(b"\0" + varints(0, 9, -1, -1, 0)), 1
    yield "an offset before its batch", record(b"\0" + varints(0, -1, -1, -1, 0)), 1


def unread_by_java(section: bytes) -> Iterator[Poison]:
    """Of the 20 records in ``section``, in a codec's format or nearly so: other readers may read them."""
    head = compress(CompressionType.LZ4, b"")[:7]
    first, second = (struct.pack("<I", len(half) | 1 << 31) + half for half in (section[:100], section[100:]))
    for name, empty in (("stored", b"\0\0\0\x80"), ("compressed", b"\1\0\0\0\0")):
        data = head + first + empty + second + b"\0\0\0\0"
        yield Poison(f"lz4 with an empty block within, {name}", batch(data, CompressionType.LZ4, 20))
    raw = bytes(cramjam.snappy.compress_raw(section))
    assert raw[0] & 0x80
    assert not raw[1] & 0x80
    data = bytes([raw[0], raw[1] | 0x80, 0x80, 0x80, 0x80, 0]) + raw[2:]
    yield Poison("snappy with a length of six bytes", batch(data, CompressionType.SNAPPY, 20))
    one, other = (compress(CompressionType.SNAPPY, half) for half in (section[:100], section[100:]))
    data = one + other[:8] + struct.pack(">i", 0) + other[12:]
    yield Poison("a second snappy stream of version 0", batch(data, CompressionType.SNAPPY, 20))
    good = compress(CompressionType.ZSTD, section)
    for name, frame in (
        ("a wrong checksum", "240001000000000000"),
        ("a window of 256 MiB", "0090010000"),
        ("two bytes", "20001100007878"),
    ):
        data = bytes.fromhex("28b52ffd" + frame) + good
        yield Poison(f"an empty zstd frame with {name}", batch(data, CompressionType.ZSTD, 20))


def poisons() -> Iterator[Poison]:
    """All of them."""
    for name, section, count in malformed():
        for codec in CompressionType:
            yield Poison(f"{name}, {codec.name.lower()}", batch(compress(codec, section), codec, count))
    for codec in CODECS:
        word, good = codec.name.lower(), compress(codec, records(20))
        yield Poison(f"no {word} at all", batch(records(20), codec, 20))
        yield Poison(f"nothing as {word}", batch(b"", codec, 1))
        yield Poison(f"half of {word}", batch(good[: len(good) // 2], codec, 20))
        yield Poison(f"{word} and garbage behind it", batch(good + b"garbage", codec, 20))
        yield Poison(f"2^31-1 records as {word}", batch(good, codec, MANY))
        broken = bytearray(good)
        for place in range(len(broken) // 2, len(broken) // 2 + 8):
            broken[place] ^= 0x5A
        yield Poison(f"{word} broken in the middle", batch(bytes(broken), codec, 20))
    section = records(20)
    halves = [compress(CompressionType.LZ4, half) for half in (section[:100], section[100:])]
    yield Poison("lz4 of dependent blocks", batch(bytes(cramjam.lz4.compress(section)), CompressionType.LZ4, 20))
    yield Poison("lz4 of two frames", batch(b"".join(halves), CompressionType.LZ4, 20))
    yield from unread_by_java(section)
    for code in (5, 6, 7):
        data = batch(records(20), count=20)
        layout.INT16.pack_into(data, layout.ATTRIBUTES, code)
        seal(data)
        yield Poison(f"the codec {code}, which is none", data)
    yield Poison("2^31-1 records, uncompressed", batch(records(20), count=MANY))
