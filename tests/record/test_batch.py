import pytest

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_append_time, patch_header, patch_max_timestamp, patch_producer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType


def build(records=3, **fields):
    builder = RecordBatchBuilder(**fields)
    for n in range(records):
        builder.append(1000 + n, b"k%d" % n, b"v" * 20)
    return builder.build()


def test_fields():
    data = build(
        base_offset=40,
        producer_id=7,
        producer_epoch=3,
        base_sequence=5,
        is_transactional=True,
        partition_leader_epoch=9,
        compression=CompressionType.GZIP,
    )
    batch = RecordBatch(b"before" + data + b"after", 6)
    batch.validate()
    assert (batch.base_offset, batch.last_offset_delta, batch.last_offset, batch.next_offset) == (40, 2, 42, 43)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 3, 5, 7)
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 1002, 0)
    assert (batch.is_transactional, batch.is_control, batch.has_delete_horizon) == (True, False, False)
    assert (batch.partition_leader_epoch, batch.magic, batch.record_count) == (9, 2, 3)
    assert batch.compression is CompressionType.GZIP
    assert batch.size_in_bytes == len(data)
    assert batch.buffer == data
    assert batch.payload == data[61:]
    assert "offsets=40..42" in repr(batch)


def test_header_is_61_bytes():
    assert layout.HEADER.size == layout.HEADER_SIZE == 61


def test_nothing_is_copied():
    data = bytearray(build())
    batch = RecordBatch(data)
    data[-1] ^= 0xFF
    assert batch.payload[-1] == data[-1]
    assert batch.buffer.obj is data


def test_every_flipped_byte_after_the_crc_is_noticed():
    data = build()
    for position in range(layout.CRC, len(data)):
        mutated = bytearray(data)
        mutated[position] ^= 0x10
        with pytest.raises(CorruptRecord, match="CRC"):
            RecordBatch(mutated).validate()


@pytest.mark.parametrize("size", [0, 11, 12, 60])
def test_no_room_for_a_header(size):
    with pytest.raises(CorruptRecord, match="no room"):
        RecordBatch(build()[:size])


def test_cut_short():
    with pytest.raises(CorruptRecord, match="claims"):
        RecordBatch(build()[:-1])


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31), 2**31 - 1])
def test_impossible_length(length):
    data = bytearray(build())
    layout.INT32.pack_into(data, layout.LENGTH, length)
    with pytest.raises(CorruptRecord, match="claims"):
        RecordBatch(data)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magic(magic):
    data = bytearray(build())
    data[layout.MAGIC] = magic & 0xFF
    with pytest.raises(CorruptRecord, match=f"magic {magic}"):
        RecordBatch(data)


@pytest.mark.parametrize("position", [-1, 1, 10_000])
def test_position_outside(position):
    with pytest.raises(CorruptRecord):
        RecordBatch(build(), position)


def _resealed(position, packer, value):
    data = bytearray(build())
    packer.pack_into(data, position, value)
    patch_producer(data, 0, -1, -1, -1)
    return RecordBatch(data)


def test_impossible_counts_and_codes():
    with pytest.raises(CorruptRecord, match="-1 records"):
        _resealed(layout.RECORD_COUNT, layout.INT32, -1).validate()
    with pytest.raises(CorruptRecord, match="claims 1000000 records"):
        _resealed(layout.RECORD_COUNT, layout.INT32, 1_000_000).validate()
    with pytest.raises(CorruptRecord, match="delta of -5"):
        _resealed(layout.LAST_OFFSET_DELTA, layout.INT32, -5).validate()
    with pytest.raises(CorruptRecord, match="compression code 6"):
        _resealed(layout.ATTRIBUTES, layout.INT16, 6).validate()


def test_compacted_batch_is_valid():
    _resealed(layout.LAST_OFFSET_DELTA, layout.INT32, 500).validate()


def test_patch_header_leaves_the_crc_valid():
    data = bytearray(b"xx" + build())
    patch_header(data, 2, 1 << 40, 12)
    batch = RecordBatch(data, 2)
    batch.validate()
    assert (batch.base_offset, batch.partition_leader_epoch) == (1 << 40, 12)
    with pytest.raises(CorruptRecord):
        patch_header(bytearray(11), 0, 1, 1)


def test_patch_append_time():
    data = bytearray(b"xx" + build(is_transactional=True))
    patch_append_time(memoryview(data), 2, 5555)
    batch = RecordBatch(data, 2)
    batch.validate()
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp) == (1, 5555, 1000)
    assert batch.is_transactional


def test_patch_max_timestamp():
    data = bytearray(b"xx" + build(is_transactional=True))
    patch_max_timestamp(memoryview(data), 2, 5555)
    batch = RecordBatch(data, 2)
    batch.validate()
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp) == (0, 5555, 1000)
    assert batch.is_transactional


def test_patch_producer():
    data = bytearray(build())
    patch_producer(data, 0, 77, 2, 2**31 - 2)
    batch = RecordBatch(data)
    batch.validate()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 2, 2**31 - 2)
    assert batch.last_sequence == 0, "sequences wrap"
