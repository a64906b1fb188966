"""Batches of two independent implementations: librdkafka (captured, and live) and kafka-python."""

import importlib
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from golden.samples import COMPRESSIONS, golden_records

from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.columnar import COLUMNS, HEADERS_TYPE, ColumnarDecoder, encode_columns
from sparklog.record.compression import CompressionType
from sparklog.record.records import Record, iter_batches, iter_records

pytestmark = pytest.mark.usefixtures("codec")

GOLDEN = Path(__file__).parent.parent / "golden"
with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    kafka_python = importlib.import_module("kafka.record.default_records")
# It needs packages for snappy and lz4 that nothing else here does; librdkafka covers those.
KAFKA_PYTHON = ("none", "gzip", "zstd")


def table(batches):
    decoder = ColumnarDecoder(COLUMNS)
    for batch in batches:
        batch.validate()
        decoder.append(batch)
    return pa.table(decoder.finish())


def expected_table():
    columns = list(zip(*golden_records(), strict=True))
    headers = [[{"key": key, "value": value} for key, value in row] or None for row in columns[4]]
    return pa.table(
        {
            "key": pa.array(columns[2], pa.binary()),
            "value": pa.array(columns[3], pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
            "offset": pa.array(columns[0], pa.int64()),
            "timestamp": pa.array(columns[1], pa.int64()),
            "timestampType": pa.array([0] * len(headers), pa.int32()),
        }
    )


def encoded(compression):
    source = expected_table().combine_chunks()
    names = ("key", "value", "headers", "timestamp")
    kind = CompressionType.from_name(compression)
    (batch,) = encode_columns(*[source[name] for name in names], now_ms=0, compression=kind)
    assert RecordBatch(batch.data).compression is kind
    return batch.data


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_golden_batches_of_librdkafka(compression):
    data = (GOLDEN / f"librdkafka-{compression}.batch").read_bytes()
    batches = list(iter_batches(data, partial_tail=False))
    assert {batch.compression.name.lower() for batch in batches} == {compression}
    assert table(batches) == expected_table()
    assert [record for batch in batches for record in iter_records(batch)] == golden_records()


def test_our_bytes_are_librdkafkas():
    data = (GOLDEN / "librdkafka-none.batch").read_bytes()
    assert encoded("none")[61:] == data[61:]


@pytest.mark.parametrize("compression", KAFKA_PYTHON)
def test_reading_kafka_python(compression):
    writer = kafka_python.DefaultRecordBatchBuilder(
        2, CompressionType.from_name(compression).value, True, 31, 4, 900, batch_size=1 << 20
    )
    for record in golden_records():
        writer.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = RecordBatch(writer.build())
    assert table([batch]) == expected_table()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (31, 4, 900)
    assert batch.is_transactional
    assert batch.compression.name.lower() == compression


@pytest.mark.parametrize("compression", KAFKA_PYTHON)
def test_kafka_python_reads_ours(compression):
    built = RecordBatchBuilder(CompressionType.from_name(compression), producer_id=6, producer_epoch=2, base_sequence=1)
    for _, *rest in golden_records():
        built.append(*rest)
    for data in (bytes(encoded(compression)), built.build()):
        reader = kafka_python.DefaultRecordBatch(bytearray(data))
        assert reader.validate_crc()
        found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]
        assert found == golden_records()


@pytest.mark.peer
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_librdkafka_reads_ours(compression):
    cluster = pytest.importorskip("golden.librdkafka").MockCluster()
    cluster.append(encoded(compression))
    assert [Record(*record) for record in cluster.consume(len(golden_records()))] == golden_records()


@pytest.mark.peer
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_reading_librdkafka_live(compression):
    cluster = pytest.importorskip("golden.librdkafka").MockCluster()
    cluster.produce(golden_records(), compression)
    assert table(iter_batches(cluster.fetch())) == expected_table()
