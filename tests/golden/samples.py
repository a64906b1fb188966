"""The records behind the golden batches, the same for every producer and compression."""

from sparklog.record.records import Record

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_700_000_000_000


def golden_records() -> list[Record]:
    """Nulls, empties, headers, a negative timestamp delta, and enough repetition for every codec to compress."""
    odd: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
        (b"k", b"headers", (("a", b"1"), ("empty", b""), ("null", None), ("a", b"2"), ("gr\u00fc\u00df", b"\x00\xff"))),
    ]
    plain = [(b"key-%d" % (n % 7), b"a value that repeats itself, %d" % n, ()) for n in range(200)]
    return [
        Record(offset, FIRST_TIMESTAMP + (offset * 37) % 91 - 11 * (offset == 3), key, value, headers)
        for offset, (key, value, headers) in enumerate([*odd, *plain])
    ]
