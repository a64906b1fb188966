import pytest

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker, read_marker

pytestmark = pytest.mark.usefixtures("codec")


@pytest.mark.parametrize("kind", ControlType)
def test_marker(kind):
    marker = EndTransactionMarker(kind, 12)
    batch = RecordBatch(build_marker(marker, ProducerIdAndEpoch(70, 3), 1234, base_offset=9))
    batch.validate()
    assert (batch.is_control, batch.is_transactional, batch.record_count) == (True, True, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (70, 3, -1)
    assert (batch.base_offset, batch.max_timestamp) == (9, 1234)
    assert read_marker(batch) == marker


def test_bytes():
    marker = EndTransactionMarker(ControlType.COMMIT, 258)
    assert marker.key().hex() == "00000001"
    assert marker.value().hex() == "000000000102"


def test_later_versions_may_append_fields():
    assert read_marker(_batch(b"\0\1\0\1more", b"\0\1\0\0\0\5more")) == EndTransactionMarker(ControlType.COMMIT, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (b"\0\0\0\7", bytes(6)),
        (b"\xff\xff\0\1", bytes(6)),
    ],
)
def test_malformed(key, value):
    with pytest.raises(CorruptRecord):
        read_marker(_batch(key, value))


def test_not_a_control_batch():
    with pytest.raises(CorruptRecord, match="not a control"):
        read_marker(_batch(bytes(4), bytes(6), is_control=False))
    with pytest.raises(CorruptRecord, match="empty"):
        read_marker(RecordBatch(RecordBatchBuilder(is_control=True).build()))


def _batch(key, value, is_control=True):
    builder = RecordBatchBuilder(is_control=is_control)
    builder.append(1, key, value)
    return RecordBatch(builder.build())
