"""LegacyMessage: one message of the formats before the record batch."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.record._impl.abc import Record
from sparklog.record.compression import CompressionType, decompress
from sparklog.record.legacy.lz4_header import with_right_checksum

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_TIMESTAMP = -1
NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

SMALLEST_ENTRY = 14
"""The least size an entry with an offset may state: that of a magic 0 message with neither key nor value."""


class Format(Enum):
    """What a segment file begins with."""

    FIRST = "first"
    MAGIC_0 = "magic 0"
    MAGIC_1 = "magic 1"
    V2 = "v2"


_COMPRESSIONS = {
    Format.FIRST: (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY),
    Format.MAGIC_0: (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4),
    Format.MAGIC_1: (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4),
}
_COMPRESSION_MASKS = {Format.FIRST: 0x03, Format.MAGIC_0: 0x07, Format.MAGIC_1: 0x07}


class LegacyMessage(NamedTuple):
    """One message, or the wrapper of a compressed set; key and value are views of the buffer it was read from.

    ``position`` and ``size`` are those of the whole entry in that buffer, offset and size fields included.
    ``offset`` is as stored (a wrapper's is its last message's; in the first format, the byte position in the log).
    ``timestamp`` is in ms, -1 for none; ``timestamp_type`` is 0 for create time, 1 for log append time, -1 where the
    format has none. ``crc`` is as stored; a wrong one is not an error until ``validate``.
    """

    position: int
    size: int
    offset: int
    format: Format
    magic: int
    attributes: int
    crc: int
    crc_ok: bool
    timestamp: int
    timestamp_type: int
    key: memoryview | None
    value: memoryview | None

    @property
    def compression(self) -> CompressionType:
        """CorruptRecord where the code is none that this format has."""
        code = self.attributes & _COMPRESSION_MASKS[self.format]
        known = _COMPRESSIONS[self.format]
        if code >= len(known):
            raise CorruptRecord(
                f"message at offset {self.offset} ({self.format.value}) has the compression code {code}"
            )
        return known[code]

    def validate(self) -> None:
        """CorruptRecord where the CRC is not that of the bytes."""
        if not self.crc_ok:
            raise CorruptRecord(
                f"message at offset {self.offset} ({self.format.value}) has CRC {self.crc:#x}, its bytes have another"
            )

    def decompressed(self, max_decompressed: int) -> memoryview:
        """The set of messages in a wrapper; CorruptRecord where it is larger than ``max_decompressed`` bytes."""
        if self.value is None:
            raise CorruptRecord(f"compressed message at offset {self.offset} has no value")
        compression, value = self.compression, self.value
        data: Buffer = value
        if compression is CompressionType.LZ4 and self.format is Format.MAGIC_0:
            data = with_right_checksum(value)
        return memoryview(decompress(compression, data, max_decompressed))

    def refuse_nested(self) -> None:
        """CorruptRecord where this message, found in a wrapper, is a wrapper itself."""
        if self.compression is not CompressionType.NONE:
            raise CorruptRecord(f"compressed message at offset {self.offset} within a compressed message")

    def record(self) -> Record:
        """An uncompressed message as a record like any other, for people and tests."""
        key, value = self.key, self.value
        return Record(
            self.offset,
            self.timestamp,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            (),
        )
