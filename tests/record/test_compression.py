import random
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
import zstandard

from sparklog.errors import ConfigError, CorruptRecord
from sparklog.record.compression import (
    CompressionType,
    check_lz4_of_java,
    compress,
    decompress,
    most_decompressed,
)

REAL = [kind for kind in CompressionType if kind is not CompressionType.NONE]
LIMIT = 1 << 20
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"the quick brown fox %d " * 9000,
    "zeros": bytes(700_000),
    "noise": random.Random(7).randbytes(200_001),
}


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize("sample", SAMPLES)
def test_round_trip(kind, sample):
    data = SAMPLES[sample]
    packed = compress(kind, memoryview(data))
    assert bytes(decompress(kind, memoryview(packed), LIMIT)) == data
    assert bytes(decompress(kind, bytearray(packed), len(data))) == data


@pytest.mark.parametrize("kind", REAL)
def test_repetition_shrinks(kind):
    assert len(compress(kind, SAMPLES["text"])) < len(SAMPLES["text"]) / 10


def test_level_matters_to_gzip_and_zstd():
    data = b" ".join(b"%d is %d squared" % (n * n, n) for n in range(9000))
    assert len(compress(CompressionType.GZIP, data, 9)) < len(compress(CompressionType.GZIP, data, 1))
    assert len(compress(CompressionType.ZSTD, data, 19)) < len(compress(CompressionType.ZSTD, data, 1))


@pytest.mark.parametrize("kind", CompressionType)
def test_limit_is_exact(kind):
    packed = compress(kind, SAMPLES["text"])
    assert len(memoryview(decompress(kind, packed, len(SAMPLES["text"])))) == len(SAMPLES["text"])
    with pytest.raises(CorruptRecord):
        decompress(kind, packed, len(SAMPLES["text"]) - 1)


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize("garbage", [b"", b"\0", b"garbage", b"\xff" * 40, bytes(40)])
def test_garbage(kind, garbage):
    try:
        assert bytes(decompress(kind, garbage, LIMIT)) == b""
    except CorruptRecord:
        return
    assert kind is CompressionType.SNAPPY, "only a raw snappy block may begin with a length of zero"


@pytest.mark.parametrize("kind", REAL)
def test_every_cut_is_noticed(kind):
    packed = compress(kind, SAMPLES["text"])
    for size in {*range(min(60, len(packed))), *range(0, len(packed), 97), len(packed) - 1}:
        # A stream of whole snappy blocks is a stream; the batch's record count notices what is missing.
        if kind is CompressionType.SNAPPY and size in _block_ends(packed):
            continue
        with pytest.raises(CorruptRecord):
            decompress(kind, packed[:size], LIMIT)


def _block_ends(packed):
    ends, at = {16}, 16
    while at < len(packed):
        at += 4 + struct.unpack_from(">I", packed, at)[0]
        ends.add(at)
    return ends


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", REAL)
def test_flipped_bytes_raise_nothing_but_corrupt_record(kind):
    chance = random.Random(11)
    packed = compress(kind, SAMPLES["text"][:5000])
    outcomes = set()
    for _ in range(3000):
        mutated = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        try:
            assert len(memoryview(decompress(kind, mutated, 6000))) <= 6000
            outcomes.add("read")
        except CorruptRecord:
            outcomes.add("refused")
    assert "refused" in outcomes


def test_java_snappy_framing():
    packed = compress(CompressionType.SNAPPY, bytes(100_000))
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    assert len(_block_ends(packed)) == 1 + 4, "32 KB blocks"


def test_snappy_streams_one_behind_the_other_are_read_as_by_java():
    first, second = SAMPLES["text"], bytes(100_000)
    packed = b"".join(compress(CompressionType.SNAPPY, each) for each in (first, second, b"", first))
    assert bytes(decompress(CompressionType.SNAPPY, packed, LIMIT)) == first + second + first
    with pytest.raises(CorruptRecord, match="cut short in a header"):
        decompress(CompressionType.SNAPPY, packed + compress(CompressionType.SNAPPY, b"")[:-1], LIMIT)


def test_raw_snappy_is_read():
    packed = bytes(cramjam.snappy.compress_raw(SAMPLES["text"]))
    assert bytes(decompress(CompressionType.SNAPPY, packed, LIMIT)) == SAMPLES["text"]


def test_lz4_frame_is_one_that_java_reads():
    packed = compress(CompressionType.LZ4, SAMPLES["text"])
    assert packed[:7].hex() == "04224d18604082", "version 1, independent blocks of 64 KB"
    assert bytes(cramjam.lz4.decompress(packed)) == SAMPLES["text"]


def test_lz4_frames_with_sizes_checksums_and_dependent_blocks_are_read():
    packed = bytes(cramjam.lz4.compress(SAMPLES["text"]))
    assert not packed[4] & 0x20, "the library is expected to write dependent blocks"
    assert bytes(decompress(CompressionType.LZ4, packed + packed, LIMIT)) == SAMPLES["text"] * 2


def test_java_reads_one_lz4_frame_of_independent_blocks():
    good = compress(CompressionType.LZ4, SAMPLES["text"])
    check_lz4_of_java(good)
    linked = bytes(cramjam.lz4.compress(SAMPLES["text"]))
    with_dictionary = good[:4] + bytes([good[4] | 0x01]) + good[5:6] + b"dict" + good[6:]
    for wrong, why in (
        (linked, "dependent blocks"),
        (with_dictionary, "dictionary"),
        (good + good, "behind the LZ4 frame"),
        (good + b"\0", "1 bytes stand behind"),
        (good[:-1], "cut short"),
        (b"", "cut short"),
    ):
        with pytest.raises(CorruptRecord, match=why):
            check_lz4_of_java(wrong)


@pytest.mark.parametrize(
    "empty", [b"\0\0\0\x80", b"\1\0\0\0\0", b"\1\0\0\0\5"], ids=["stored", "compressed", "another"]
)
def test_java_does_not_look_behind_an_empty_lz4_block(empty):
    text = SAMPLES["text"][:1000]
    head, end = compress(CompressionType.LZ4, b"")[:7], b"\0\0\0\0"
    first, second = (struct.pack("<I", len(each) | 0x80000000) + each for each in (text[:500], text[500:]))
    check_lz4_of_java(head + first + second + empty + end)
    for wrong in (head + first + empty + second + end, head + empty + first + second + end):
        assert bytes(decompress(CompressionType.LZ4, wrong, LIMIT)) == text
        with pytest.raises(CorruptRecord, match="behind an empty one"):
            check_lz4_of_java(wrong)


@pytest.mark.parametrize("is_stream", [True, False])
def test_no_reader_takes_a_snappy_length_of_more_than_five_bytes(is_stream):
    block = bytes(cramjam.snappy.compress_raw(b"twelve bytes"))
    for more, is_read in (([], True), ([0x80] * 3 + [0], True), ([0x80] * 4 + [0], False), ([0x80] * 8 + [0], False)):
        length = bytes([block[0] | 0x80, *more]) if more else block[:1]
        packed = length + block[1:]
        if is_stream:
            packed = compress(CompressionType.SNAPPY, b"") + struct.pack(">I", len(packed)) + packed
        if is_read:
            assert bytes(decompress(CompressionType.SNAPPY, packed, LIMIT)) == b"twelve bytes"
        else:
            with pytest.raises(CorruptRecord, match="more than 5 bytes"):
                decompress(CompressionType.SNAPPY, packed, LIMIT)


def test_java_knows_the_version_of_each_snappy_stream_but_the_first():
    packed = compress(CompressionType.SNAPPY, b"text")
    other = {version: b"\x82SNAPPY\0" + struct.pack(">ii", version, 1) + packed[16:] for version in (-1, 0, 2)}
    for good in (other[0] + packed, packed + other[2]):
        assert bytes(decompress(CompressionType.SNAPPY, good, LIMIT)) == b"texttext"
    for wrong in (packed + other[0], packed + other[-1]):
        with pytest.raises(CorruptRecord, match="no reader knows"):
            decompress(CompressionType.SNAPPY, wrong, LIMIT)


SKIPPABLE = struct.pack("<II", 0x184D2A5F, 3) + b"???"


@pytest.mark.parametrize(
    ("descriptor", "rest", "is_good"),
    [
        ("2000", "010000", True),
        ("2400", "01000099e9d851", True),
        ("2400", "01000000000000", False),
        ("0088", "010000", True),
        ("0090", "010000", False),
        ("2000", "1100007878", False),
    ],
    ids=["none", "its checksum", "another checksum", "128 MiB", "256 MiB", "holds two bytes and claims none"],
)
def test_a_zstd_frame_that_holds_nothing_is_looked_at_like_others(descriptor, rest, is_good):
    good = compress(CompressionType.ZSTD, SAMPLES["text"])
    empty = bytes.fromhex("28b52ffd" + descriptor + rest)
    for packed in (empty + good, good + empty):
        if is_good:
            assert bytes(decompress(CompressionType.ZSTD, packed, LIMIT)) == SAMPLES["text"]
        else:
            with pytest.raises(CorruptRecord):
                decompress(CompressionType.ZSTD, packed, LIMIT)


@pytest.mark.parametrize("settings", [{}, {"write_checksum": True}, {"write_content_size": False}])
def test_zstd_frames_are_read_as_one(settings):
    """As Java and librdkafka read them; what a frame of another kind holds is no data."""
    text = SAMPLES["text"]
    frame = zstandard.ZstdCompressor(**settings).compress
    packed = SKIPPABLE + frame(text[:500]) + frame(b"") + SKIPPABLE + frame(text[500:]) + SKIPPABLE
    assert bytes(decompress(CompressionType.ZSTD, packed, len(text))) == text
    assert len(text) <= most_decompressed(CompressionType.ZSTD, packed, LIMIT) < LIMIT
    whole = len(packed) - len(SKIPPABLE)
    for wrong, limit in ((packed, len(text) - 1), (packed, 500), (packed[: whole - 1], LIMIT), (packed[:-1], LIMIT)):
        with pytest.raises(CorruptRecord):
            decompress(CompressionType.ZSTD, wrong, limit)


def test_gzip_members_are_read_as_one():
    packed = zlib.compress(b"one, ", wbits=31) + zlib.compress(b"two", wbits=31)
    assert bytes(decompress(CompressionType.GZIP, packed, 8)) == b"one, two"
    with pytest.raises(CorruptRecord):
        decompress(CompressionType.GZIP, packed, 7)


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize("more", [-1, 0, 1, 5 << 20, (7 << 20) - 1, 7 << 20, (7 << 20) + 1, 9 << 20])
@pytest.mark.parametrize(
    "pattern", [b"\0", b"pattern", random.Random(3).randbytes(3 << 20)], ids=["0", "text", "noise"]
)
def test_what_is_large_is_decompressed_whole(kind, more, pattern):
    """Beyond the size from which on it is done in parts."""
    size = (1 << 20) + more
    data = (pattern * (size // len(pattern) + 1))[:size]
    packed = compress(kind, data)
    assert bytes(decompress(kind, packed, size)) == data
    assert bytes(decompress(kind, packed, 20 << 20)) == data
    for wrong, limit in ((packed, size - 1), (packed[:-1], size), (packed[: len(packed) // 2], size)):
        with pytest.raises(CorruptRecord):
            decompress(kind, wrong, limit)


@pytest.mark.parametrize(
    "sizes", [(1 << 20, 1 << 20), (0, 0), (3 << 20, 0, 5), (5, 1 << 20, 3 << 20), (5 << 20, 5 << 20), (1,) * 100]
)
def test_large_gzip_members_are_read_as_one(sizes):
    members = [random.Random(size).randbytes(size) for size in sizes]
    packed = b"".join(zlib.compress(each, wbits=31) for each in members)
    assert bytes(decompress(CompressionType.GZIP, packed, sum(sizes))) == b"".join(members)
    for wrong in (packed + b"x", packed[:-1]):
        with pytest.raises(CorruptRecord):
            decompress(CompressionType.GZIP, wrong, 20 << 20)
    if sum(sizes):
        with pytest.raises(CorruptRecord):
            decompress(CompressionType.GZIP, packed, sum(sizes) - 1)


def test_zstd_without_a_content_size_is_read():
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    packed = stream.compress(SAMPLES["text"]) + stream.flush()
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert bytes(decompress(CompressionType.ZSTD, packed, LIMIT)) == SAMPLES["text"]


BOMBS = """
import resource, struct, sys, zlib
from sparklog.errors import CorruptRecord
from sparklog.record.compression import (
    CompressionType,
    check_lz4_of_java,
    compress,
    decompress,
    most_decompressed,
)

size = 1 << 30
blocks = size // 65536
deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
gzip = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(128)) + deflate.flush()
lz4 = compress(CompressionType.LZ4, bytes(65536))
snappy = compress(CompressionType.SNAPPY, bytes(32768))
rle = struct.pack("<I", (131072 << 3) | 2)[:3] + b"x"
last = struct.pack("<I", (1 << 3) | 3)[:3] + b"x"
bombs = {
    "gzip": gzip,
    "lz4": lz4[:7] + lz4[7:-4] * blocks + lz4[-4:],
    "lz4 lie": lz4[:7] + struct.pack("<I", 50_000_000) + bytes(50_000_000) + lz4[-4:],
    "snappy": snappy[:16] + snappy[16:] * blocks,
    "snappy lie": b"\\xff\\xff\\xff\\x7f" + bytes(50),
    "zstd": b"\\x28\\xb5\\x2f\\xfd\\x00\\x58" + rle * (size // 131072) + last,
    "zstd lie": b"\\x28\\xb5\\x2f\\xfd\\xa0" + struct.pack("<I", 900_000) + last,
}
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), in_use + (64 << 20)))
for name, bomb in bombs.items():
    kind = CompressionType.from_name(name.split()[0])
    try:
        decompress(kind, bomb, 1 << 20)
    except CorruptRecord as error:
        print(name)
"""


def test_bombs_are_refused_in_little_memory():
    answer = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=60)
    refused = ["gzip", "lz4", "lz4 lie", "snappy", "snappy lie", "zstd", "zstd lie"]
    assert answer.stdout.splitlines() == refused, answer.stderr


MUCH = """
import resource, zlib
from sparklog.record.compression import CompressionType, decompress

deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
packed = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(100)) + deflate.flush()
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (180 << 20), in_use + (180 << 20)))
print(len(decompress(CompressionType.GZIP, packed, 128 << 20)))
"""


def test_much_gzip_is_not_copied_as_a_whole():
    """In which time no other thread would run, and for which as much memory would be used again."""
    answer = subprocess.run([sys.executable, "-c", MUCH], capture_output=True, text=True, timeout=60)
    assert answer.stdout.strip() == str(100 << 20), answer.stderr


def test_names():
    assert [CompressionType.from_name(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(range(5))
    with pytest.raises(ConfigError, match=r"brotli.*none, gzip, snappy, lz4, zstd"):
        CompressionType.from_name("brotli")
