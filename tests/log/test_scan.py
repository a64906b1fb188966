"""What lies behind damage: only a batch whose CRC is right is good."""

from log.samples import batch_of

from sparklog.log.file_records import FileRecords
from sparklog.log.scan import DamageKind, OffsetRange, examine
from sparklog.record import layout

OFFSETS = OffsetRange(0, 100)


def file_of(path, *batches):
    path.write_bytes(b"".join(batches))
    return FileRecords(path, writable=False)


def spoilt():
    """A batch but for its last byte."""
    data = bytearray(batch_of(1000, 1001))
    data[-1] ^= 0xFF
    return bytes(data)


def test_what_looks_like_a_batch_and_has_a_wrong_crc_is_passed_over(tmp_path):
    good = bytes(batch_of(1000, 1001))
    damage = examine(file_of(tmp_path / "f", spoilt(), spoilt(), good), 0, OFFSETS)
    assert damage.kind is DamageKind.CORRUPT_MIDDLE
    assert damage.next_good is not None
    assert (damage.next_good.position, bytes(damage.next_good.batch.buffer)) == (2 * len(good), good)
    assert (damage.position, damage.size) == (0, 3 * len(good))


def test_where_no_crc_is_right_the_tail_is_torn(tmp_path):
    damage = examine(file_of(tmp_path / "f", spoilt(), spoilt()), 0, OFFSETS)
    assert (damage.kind, damage.next_good) == (DamageKind.TORN_TAIL, None)


def test_a_batch_of_offsets_that_cannot_be_here_is_passed_over(tmp_path):
    batch = bytes(batch_of(1000, 1001))
    records = file_of(tmp_path / "f", b"\xff" * 7, batch)
    assert examine(records, 0, OffsetRange(0, 2)).next_good is not None
    assert examine(records, 0, OffsetRange(0, 1)).next_good is None
    assert examine(records, 0, OffsetRange(1, 100)).next_good is None


def test_headers_of_more_than_the_file_holds_are_no_batches_however_many_there_are(tmp_path):
    header = bytearray(batch_of(1000, 1001)[: layout.HEADER_SIZE])
    layout.OFFSET_AND_LENGTH.pack_into(header, 0, 0, 1 << 14)
    records = file_of(tmp_path / "f", bytes(1 << 15), *[header] * 30)
    assert examine(records, 0, OFFSETS).next_good is None
