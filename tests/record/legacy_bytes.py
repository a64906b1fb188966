"""Messages of the old formats, made field by field: nothing that we ship writes them."""

import zlib
from struct import pack

from sparklog.record.compression import CompressionType, compress

GZIP, SNAPPY, LZ4 = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4
APPEND_TIME = 0x08


def field(data):
    return pack(">i", -1) if data is None else pack(">i", len(data)) + data


def entry(offset, key, value, *, magic=0, attributes=0, timestamp=-1):
    """An entry of a message set, magic 0 or 1."""
    times = pack(">q", timestamp) if magic else b""
    return sealed(offset, bytes((magic, attributes)) + times + field(key) + field(value))


def sealed(offset, body):
    """An entry whose bytes from the magic on are ``body``."""
    return pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(offset, inner, kind=GZIP, *, magic=0, attributes=0, timestamp=-1):
    """An entry that holds the set ``inner``, compressed."""
    value = compress(kind, inner)
    if kind is LZ4 and magic == 0:
        value = with_old_checksum(value)
    return entry(offset, None, value, magic=magic, attributes=attributes | kind, timestamp=timestamp)


def with_old_checksum(frame):
    """An LZ4 frame of ours (64 KB independent blocks, nothing optional) with the header that Kafka 0.8 gave it."""
    assert frame[4:7] == b"\x60\x40\x82"
    return frame[:6] + b"\x1a" + frame[7:]


def first(payload, *, magic=1, attributes=0):
    """A message of the first format."""
    head = bytes((magic, attributes)) if magic else b"\0"
    return pack(">i", len(head) + 4 + len(payload)) + head + pack(">I", zlib.crc32(payload)) + payload


def first_wrapper(inner, kind=GZIP):
    return first(compress(kind, inner), attributes=kind)
