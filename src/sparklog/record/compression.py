"""The five compressions a record batch may carry, in the framings that Kafka clients write.

===== ======= =============================================================================================
code  name    framing of the records section
===== ======= =============================================================================================
0     none    as it is
1     gzip    RFC 1952 members
2     snappy  written as xerial's stream (16-byte header, then length-prefixed raw blocks), as Java's clients
              do; a bare raw block, as librdkafka writes, is read as well
3     lz4     the LZ4 frame format, 64 KB independent blocks in one frame: Java's reader refuses dependent blocks,
              and does not see a second frame, nor what follows an empty block (``check_lz4_of_java``); all are read
              here
4     zstd    written as one zstd frame; several are read as one, as Java does
===== ======= =============================================================================================

``decompress`` finds an upper bound of the output from the compressed side (block headers, declared lengths) and
allocates no more than the smaller of that and ``max_size``. Whatever is wrong with the input, it raises CorruptRecord.
"""

from __future__ import annotations

import threading
import zlib
from enum import IntEnum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import TYPE_CHECKING

import cramjam
import zstandard

from sparklog.errors import ConfigError, CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from typing_extensions import Buffer


class CompressionType(IntEnum):
    """The compression code in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """By Kafka's lower-case name; ConfigError names what is allowed."""
        try:
            return cls[name.upper()]
        except KeyError:
            allowed = ", ".join(kind.name.lower() for kind in cls)
            raise ConfigError(f"unknown compression type {name!r}: use one of {allowed}") from None


def compress(kind: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """``data`` compressed whole; ``level`` applies to gzip (1-9, default 6) and zstd (1-22, default 3) alone."""
    if kind is CompressionType.NONE:
        return bytes(data)
    if kind is CompressionType.GZIP:
        return zlib.compress(data, 6 if level is None else level, _GZIP_WBITS)
    if kind is CompressionType.ZSTD:
        return _compress_zstd(data, 3 if level is None else level)
    return _compress_snappy(data) if kind is CompressionType.SNAPPY else _compress_lz4(data)


def decompress(kind: CompressionType, data: Buffer, max_size: int) -> Buffer:
    """The bytes that ``compress`` took, as some bytes-like object; CorruptRecord when they exceed ``max_size``."""
    view = memoryview(data)
    if kind is CompressionType.NONE:
        _check_size(kind, len(view), max_size)
        return view
    try:
        return _DECOMPRESSORS[kind](view, max_size)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise CorruptRecord(
            f"{kind.name.lower()} data of {len(view)} bytes is corrupt or too large: {error}"
        ) from error


def most_decompressed(kind: int, data: Buffer, enough: int) -> int:
    """Bytes that ``decompress`` may come to at most, or some number above ``enough`` if they may be more than that.

    A block counts ``_BLOCK_WORK`` bytes at least, so that a frame of many empty blocks is as large as it is slow to
    walk. Of data that ``decompress`` will refuse only the blocks before the fault count.
    """
    view = memoryview(data)
    if kind == CompressionType.GZIP:
        return _GZIP_MAX_EXPANSION * len(view)
    if kind == CompressionType.SNAPPY:
        return _SNAPPY_MAX_EXPANSION * len(view)
    if kind not in (CompressionType.LZ4, CompressionType.ZSTD):
        return len(view)
    bound = 0
    try:
        for size in _lz4_blocks(view) if kind == CompressionType.LZ4 else _zstd_blocks(view):
            bound += max(size, _BLOCK_WORK)
            if bound > enough:
                break
    except (CorruptRecord, zstandard.ZstdError):
        pass
    return bound


_BLOCK_WORK = 512
"""Bytes that are decompressed and walked in the time in which one block header is read."""


def _check_size(kind: CompressionType, size: int, max_size: int) -> None:
    if size > max_size:
        raise CorruptRecord(f"{kind.name.lower()} data decompresses to {size} bytes or more; the limit is {max_size}")


_PART = 1 << 20
_MUCH = 8 << 20
"""Bytes to fill or to copy which takes some milliseconds, in which no other thread runs Python."""


def _room(size: int) -> memoryview:
    """So many bytes to be written to. Much of it is not filled with zeros first."""
    if size <= _MUCH:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))


# gzip

_GZIP_WBITS = 31
_GZIP_MAX_EXPANSION = 1032


def _decompress_gzip(view: memoryview, max_size: int) -> Buffer:
    parts: list[bytes] = []
    out: memoryview | None = None
    size = 0
    for part in _gzip_parts(view):
        end = size + len(part)
        _check_size(CompressionType.GZIP, end, max_size)
        if end <= _MUCH:
            parts.append(part)
        else:
            if out is None:
                out = _room(max_size)
                out[:size] = b"".join(parts)
            out[size:end] = part
        size = end
    if out is not None:
        return out[:size]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_parts(view: memoryview) -> Iterator[bytes]:
    """What the members in ``view`` hold, at most ``_PART`` bytes at a time; at least one part, which may be empty."""
    position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        part, rest = b"", memoryview(b"")
        while not member.eof:
            if not rest and len(part) < _PART:  # all that was put in has come out
                rest = view[position : position + _PART]
                position += len(rest)
                if not rest:
                    raise CorruptRecord(f"gzip data is cut short after {len(view)} bytes")
            part = member.decompress(rest, _PART)
            rest = memoryview(member.unconsumed_tail)
            yield part
        position -= len(member.unused_data)
        if position == len(view):
            return


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_VERSION = Struct(">i")
_BLOCK_LENGTH = Struct(">I")
_SNAPPY_LENGTH = 5
_SNAPPY_MAX_EXPANSION = 22
"""A raw block grows at most 64 bytes for 3."""


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, max_size: int) -> Buffer:
    blocks = _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    for block in blocks:
        _check_snappy_length(block)
    sizes = [int(cramjam.snappy.decompress_raw_len(block)) for block in blocks]
    _check_size(CompressionType.SNAPPY, sum(sizes), max_size)
    # A length beyond that is a lie told to make us allocate.
    if sum(sizes) > _SNAPPY_MAX_EXPANSION * len(view):
        raise CorruptRecord(f"snappy data of {len(view)} bytes claims to hold {sum(sizes)}")
    out = _room(sum(sizes))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        if cramjam.snappy.decompress_raw_into(block, out[position : position + size]) != size:
            raise CorruptRecord("snappy block is shorter than it declares")
        position += size
    return out


def _check_snappy_length(block: memoryview) -> None:
    """The length that a block begins with takes five bytes at most: no other reader takes more."""
    if len(block) >= _SNAPPY_LENGTH and min(block[:_SNAPPY_LENGTH]) >= 0x80:
        raise CorruptRecord(f"the length that a snappy block begins with takes more than {_SNAPPY_LENGTH} bytes")


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """Of a stream, or of several one behind the other, as Java reads them: no length begins as the header does."""
    blocks = []
    position = len(_XERIAL_HEADER)
    while position != len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            if position + len(_XERIAL_HEADER) > len(view):
                raise CorruptRecord("snappy stream is cut short in a header")
            version = _XERIAL_VERSION.unpack_from(view, position + len(_XERIAL_MAGIC))[0]
            if version < 1:  # Java looks at it in every header but the first
                raise CorruptRecord(f"snappy stream of the version {version}, which no reader knows")
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(view):
            raise CorruptRecord("snappy stream is cut short in a block length")
        start = position + 4
        position = start + _BLOCK_LENGTH.unpack_from(view, position)[0]
        if position > len(view):
            raise CorruptRecord("snappy stream is cut short in a block")
        blocks.append(view[start:position])
    return blocks


# lz4

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_SIZE = 64 * 1024
# Magic, then FLG (version 1, independent blocks), BD (64 KB blocks), and the checksum byte of those two.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_STORED = 0x8000_0000
_LZ4_INDEPENDENT, _LZ4_RESERVED = 0x20, 0x03
_LZ4_MAX_EXPANSION = 255
_LZ4_EMPTY = 1
"""The size of a compressed block that holds nothing: a token that names no byte. Any other holds some."""
_LE32 = Struct("<I")


def _compress_lz4(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        raw = view[start : start + _LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (_LE32.pack(len(block)), block)
        else:
            parts += (_LE32.pack(len(raw) | _LZ4_STORED), raw)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_lz4(view: memoryview, max_size: int) -> Buffer:
    if sum(_lz4_blocks(view)) <= max_size:
        return memoryview(cramjam.lz4.decompress(view))
    out = _room(max_size)
    return out[: cramjam.lz4.decompress_into(view, out)]


def check_lz4_of_java(data: Buffer) -> None:
    """Raises CorruptRecord where ``decompress`` may read what Java's reader does not: dependent blocks, a dictionary,
    or anything behind an empty block or the first frame. Source: Kafka 3.9, ``Lz4BlockInputStream``.
    """
    view = memoryview(data)
    end = _walked_by_java(_lz4_frame(view, 0))
    if not view[4] & _LZ4_INDEPENDENT or view[4] & _LZ4_RESERVED:
        raise CorruptRecord("the LZ4 frame has dependent blocks, or a dictionary: Java's clients do not read it")
    if end != len(view):
        raise CorruptRecord(f"{len(view) - end} bytes stand behind the LZ4 frame, where Java's clients do not look")


def _walked_by_java(blocks: Generator[int, None, int]) -> int:
    """Where an LZ4 frame of these blocks ends."""
    is_over = False
    while True:
        try:
            most = next(blocks)
        except StopIteration as end:
            return int(end.value)
        if most and is_over:
            raise CorruptRecord("a block stands behind an empty one in the LZ4 frame, where Java's clients do not look")
        is_over = most == 0


def _lz4_blocks(view: memoryview) -> Iterator[int]:
    """The most bytes that each block of the frames in ``view`` can hold, from its header; 0 for each frame's end, and
    for a block that holds nothing.
    """
    position = 0
    while position < len(view):
        position = yield from _lz4_frame(view, position)


def _lz4_frame(view: memoryview, position: int) -> Generator[int, None, int]:
    """Of one frame; where it ends."""
    if _read_le32(view, position) != _LZ4_MAGIC or position + 7 > len(view):
        raise CorruptRecord("lz4 data is not an LZ4 frame")
    flags, descriptor = view[position + 4], view[position + 5]
    block_limit = 1 << (8 + 2 * (descriptor >> 4 & 7))
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block_trailer = 4 if flags & 0x10 else 0
    while (header := _read_le32(view, position)) != 0:
        size = header & ~_LZ4_STORED
        is_empty = header == _LZ4_EMPTY
        yield 0 if is_empty else min(block_limit, size * _LZ4_MAX_EXPANSION)
        position += 4 + size + block_trailer
    yield 0
    return position + 4 + (4 if flags & 0x04 else 0)


def _read_le32(view: memoryview, position: int) -> int:
    if position + 4 > len(view):
        raise CorruptRecord("compressed data is cut short")
    return int.from_bytes(view[position : position + 4], "little")


# zstd

_ZSTD_MAX_BLOCK = 128 * 1024
_ZSTD_RLE_BLOCK = 1
_ZSTD_RESERVED_BLOCK = 3
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind the first byte, 0x50 to 0x5F, of a frame that holds no data."""


class _ZstdContexts(threading.local):
    """Contexts are dear to make and serve one thread at a time."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


_zstd = _ZstdContexts()


def _compress_zstd(data: Buffer, level: int) -> bytes:
    compressor = _zstd.compressors.get(level)
    if compressor is None:
        compressor = _zstd.compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressor.compress(memoryview(data))


def _decompress_zstd(view: memoryview, max_size: int) -> Buffer:
    parts, room = [], max_size
    for frame, most in _zstd_frames(view):
        parts.append(_decompress_zstd_frame(frame, most, room))
        room -= len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd_frame(frame: memoryview, most: int, max_size: int) -> bytes:
    """``most`` is what its blocks can hold."""
    size = zstandard.get_frame_parameters(frame).content_size
    if size != zstandard.CONTENTSIZE_UNKNOWN:
        _check_size(CompressionType.ZSTD, size, max_size)
    if most == 0 or size == 0:
        _check_empty(frame)
        return b""
    room = min(most, max_size)
    if room == 0:
        raise CorruptRecord("zstd data goes on behind the limit")
    if size != zstandard.CONTENTSIZE_UNKNOWN and size > room:
        raise CorruptRecord(f"zstd frame of {len(frame)} bytes claims to hold {size}")
    return _zstd.decompressor.decompress(frame, max_output_size=room, allow_extra_data=False)


def _check_empty(frame: memoryview) -> None:
    """Of a frame that says that it holds nothing; the library does not look into it where it need not."""
    with _zstd.decompressor.stream_reader(frame) as reader:
        if reader.read(1):
            raise CorruptRecord(f"zstd frame of {len(frame)} bytes holds something, where it says that it does not")


def _zstd_frames(view: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Each frame in ``view``, but those that hold no data, and the most bytes that it can hold."""
    start = 0
    while start < len(view) or not start:
        most, end = _walked(_zstd_frame(view, start))
        if not _is_skippable(view, start):
            yield view[start:end], most
        start = end


def _zstd_blocks(view: memoryview) -> Iterator[int]:
    """The most bytes that each block of the frames in ``view`` can hold, from its header; 0 for each frame's end."""
    position = 0
    while position < len(view) or not position:
        position = yield from _zstd_frame(view, position)
        yield 0


def _zstd_frame(view: memoryview, position: int) -> Generator[int, None, int]:
    """Of one frame; where it ends."""
    if _is_skippable(view, position):
        end = position + 8 + _read_le32(view, position + 4)
        if end > len(view):
            raise CorruptRecord("zstd frame is cut short")
        return end
    frame = view[position:]
    parameters, last = zstandard.get_frame_parameters(frame), False
    block_limit = min(_ZSTD_MAX_BLOCK, max(parameters.window_size, 1024))
    position += zstandard.frame_header_size(frame)
    while not last:
        if position + 3 > len(view):
            raise CorruptRecord("zstd frame is cut short")
        header = int.from_bytes(view[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _ZSTD_RESERVED_BLOCK:
            raise CorruptRecord("zstd frame has a block of a reserved type")
        # Stored and run-length blocks state their output size; a compressed one fills a block at most.
        yield block_limit if kind == 2 else size
        position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    return position + (4 if parameters.has_checksum else 0)


def _is_skippable(view: memoryview, position: int) -> bool:
    return view[position + 1 : position + 4] == _ZSTD_SKIPPABLE and view[position] & 0xF0 == 0x50


def _walked(blocks: Generator[int, None, int]) -> tuple[int, int]:
    """The most bytes that the blocks of a frame can hold together, and where the frame ends."""
    most = 0
    while True:
        try:
            most += next(blocks)
        except StopIteration as end:
            return most, int(end.value)


_DECOMPRESSORS: dict[CompressionType, Callable[[memoryview, int], Buffer]] = {
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
