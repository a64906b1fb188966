"""What lies behind damage: only a batch whose CRC is right is good."""

import struct
import zlib

import pytest
from log.samples import batch_of, in_a_row, transactional

from sparklog.errors import LogError
from sparklog.log.file_records import FileRecords
from sparklog.log.scan import DamageKind, OffsetRange, examine, good_batches, scan_batches
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.rebuilding import empty_header
from sparklog.record.scanner import ScanLimits, make_scanner

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
    for position in (0, 1 << 14):
        assert examine(records, position, OFFSETS).next_good is None


def test_what_looks_like_a_batch_counts_as_good_once_too_many_bytes_were_looked_into_in_vain(tmp_path):
    """Claims of batches that all reach to the end of the file: 16 cost eight times the file."""
    count, last = 40, bytes(1 << 14)
    header = bytearray(batch_of(1000, 1001)[: layout.HEADER_SIZE])
    claims = []
    for number in range(count):
        room = (count - number) * len(header) + len(last)
        layout.OFFSET_AND_LENGTH.pack_into(header, 0, 0, room - layout.LOG_OVERHEAD)
        claims.append(bytes(header))
    records = file_of(tmp_path / "f", *claims, last)
    costs, patience = 0, 8 * records.size
    for number in range(1, count):
        costs += records.size - number * len(header)
        if costs > patience:
            break
    found = examine(records, 0, OFFSETS).next_good
    assert found is not None
    assert found.position == number * len(header)


def old_message(magic, value=b"v"):
    """A message of format 0 or 1, as Kafka before 0.11 wrote it at offset 0."""
    times = struct.pack(">q", 1000) if magic else b""
    body = struct.pack(">bb", magic, 0) + times + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_is_no_damage(tmp_path, magic):
    message, batch = old_message(magic), bytes(batch_of(1000))
    for records, position in (((message,), 0), ((batch, message, message), len(batch))):
        with pytest.raises(LogError, match=f"the message at position {position} is of format {magic}, from before"):
            examine(file_of(tmp_path / "f", *records), position, OFFSETS)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_only_looks_like_a_message_of_an_old_format_is_damage(tmp_path, magic):
    message = bytearray(old_message(magic))
    for records in (message[:-1], message[:16], message[:17], message[:-1] + b"w"):
        damage = examine(file_of(tmp_path / "f", bytes(records)), 0, OFFSETS)
        assert (damage.kind, damage.position, damage.size) == (DamageKind.TORN_TAIL, 0, len(records))
    body = bytes([magic])  # the CRC is right, but nothing follows the format
    empty = struct.pack(">qi", 0, 5) + struct.pack(">I", zlib.crc32(body)) + body
    assert examine(file_of(tmp_path / "f", empty), 0, OFFSETS).kind is DamageKind.TORN_TAIL


def scanned(records, limits=ScanLimits(0, 100, 0, 100, 100)):  # noqa: B008
    scanner, seen = make_scanner(limits), []
    scan_batches(records, scanner, lambda batch: seen.append((batch.producer_id, batch.base_offset)))
    return scanner, seen


def test_a_scan_takes_the_good_batches_in_order_and_shows_those_of_producers(tmp_path):
    batches = in_a_row([batch_of(1000, 1001), transactional(7, 0, 2), batch_of(1002), transactional(8, 0)])
    scanner, seen = scanned(file_of(tmp_path / "f", *batches))
    assert (scanner.position, scanner.next_offset, seen) == (sum(map(len, batches)), 6, [(7, 2), (8, 5)])
    scanner, seen = scanned(file_of(tmp_path / "f", *batches[:3], spoilt(), batches[3]))
    assert (scanner.position, scanner.next_offset, seen) == (sum(map(len, batches[:3])), 5, [(7, 2)])


@pytest.mark.parametrize("size", [10, 2 << 20, 3 << 20])
def test_a_scan_takes_batches_whatever_their_size(tmp_path, size):
    batches = in_a_row([batch_of(1000), batch_of(1000, size=size), batch_of(1001)])
    scanner, _ = scanned(file_of(tmp_path / "f", *batches))
    assert (scanner.position, scanner.next_offset) == (sum(map(len, batches)), 3)
    torn = batches[1][:-1]
    scanner, _ = scanned(file_of(tmp_path / "f", batches[0], torn))
    assert (scanner.position, scanner.next_offset) == (len(batches[0]), 1)


def test_an_empty_file_has_nothing_to_scan(tmp_path):
    scanner, seen = scanned(file_of(tmp_path / "f"))
    assert (scanner.position, scanner.next_offset, seen) == (0, 0, [])


@pytest.mark.parametrize("block", [12, 61, 100, 1000, 1 << 20])
def test_all_good_batches_are_read_whatever_the_block(tmp_path, caplog, block):
    """Each view holds whole batches; what is damaged between them is left out, and told of."""
    batches = in_a_row([batch_of(1000 + number, size=50) for number in range(8)], first_offset=7)
    records = file_of(tmp_path / "f", *batches[:3], b"\xff" * 70, *batches[3:6], batches[6][:-1] + b"?", batches[7])
    views = [bytes(view) for view in good_batches(records, 7, block)]
    assert b"".join(views) == b"".join([*batches[:6], batches[7]])
    assert all(len(view) % len(batches[0]) == 0 and len(view) >= len(batches[0]) for view in views)
    size = len(batches[0])
    assert [line.split("; 'sparklog")[0] for line in caplog.messages] == [
        f"{records.path}: 70 bytes from position {3 * size} on, where offset 10 is due, are damaged and left out",
        f"{records.path}: {size} bytes from position {6 * size + 70} on, where offset 13 is due, are damaged and left"
        " out",
    ]


def test_good_batches_end_before_a_torn_one(tmp_path):
    batches = in_a_row([batch_of(1000), batch_of(1001)], first_offset=7)
    records = file_of(tmp_path / "f", batches[0], batches[1][:-1])
    assert [bytes(view) for view in good_batches(records, 7, 1 << 20)] == [batches[0]]
    assert list(good_batches(file_of(tmp_path / "f"), 7, 1 << 20)) == []


@pytest.mark.parametrize("block", [62, 100, 4 << 20])
def test_a_good_batch_is_found_wherever_it_begins_behind_the_damage(tmp_path, monkeypatch, block):
    """Also where a block ends in its header, or the file behind it."""
    monkeypatch.setattr("sparklog.log.scan._BLOCK", block)
    whole = bytes(batch_of(1000))
    for batch in (whole, bytes(empty_header(RecordBatch(whole)))):
        for before in (1, 2, 16, *range(30, 130)):
            damage = examine(file_of(tmp_path / "f", b"\xfe" * before, batch), 0, OFFSETS)
            assert damage.next_good is not None
            assert damage.next_good.position == before
        assert examine(file_of(tmp_path / "f", batch), 0, OFFSETS).next_good is None, "it does not begin behind it"
