"""What is checked of batches before they touch the disk.

Every batch that a leader appends proves that every reader can read it: its records are decompressed and walked by the
rules that the decoder keeps (``record.records.check_records``, docs/adr/0014). Nothing is decoded unless the topic
demands it. What the header says of the greatest timestamp is put right, since lookups by time, retention and the roll
of segments go by it.
Source: Kafka 3.9, ``LogValidator`` and ``UnifiedLog.analyzeAndValidateRecords``.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogError, RecordsRefused
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch, patch_create_time, patch_max_timestamp
from sparklog.record.columnar import ColumnarDecoder, int64_scalar
from sparklog.record.compression import CompressionType, check_lz4_of_java, most_decompressed
from sparklog.record.control import read_marker
from sparklog.record.layout import (
    ALL_ATTRIBUTES,
    ATTRIBUTES,
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
)
from sparklog.record.recompression import recompress
from sparklog.record.records import check_records, iter_batches

LONG = 64 << 10
"""Bytes of records that are looked into and compressed anew, or decoded, at once: some milliseconds at the slowest."""
_WALKED_AS_ONE = 8
"""So many bytes are decompressed and walked in the time in which one is compressed anew."""
MOST_NAMED = 100
"""Of the records to blame for a refusal. The answer has the complaint once for each, and a small batch has millions."""
_UNBOUNDED = MAX_INT64
_KNOWN_CODECS = frozenset(CompressionType)
_CODECS = {"uncompressed": CompressionType.NONE} | {kind.name.lower(): kind for kind in list(CompressionType)[1:]}


def validate_appended(records: memoryview, config: TopicConfig, origin: AppendOrigin, now_ms: int) -> RecordBatch:
    """The one batch that ``records`` holds, checked whole: length, size limit, CRC, header, records, timestamps, keys.

    Where its header tells another max timestamp than its records, or says that a log gave them their time, that is
    changed in ``records``, as Kafka does.

    Raises ApiError with the code that Kafka answers: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD,
    INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT. Where single records are to blame it is RecordsRefused.
    """
    if len(records) > MAGIC and records[MAGIC] < MAGIC_V2:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {records[MAGIC]} is not accepted; only record batches (format 2) are",
        )
    try:
        batch = RecordBatch(records)
        _check_size(batch.size_in_bytes, config)
        batch.check_crc()
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if batch.size_in_bytes != len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch a request")
    _check_header(batch, origin)
    if batch.timestamp_type:
        batch = _with_times_of_its_own(records, config)
    greatest = _check_records(batch)
    if "compact" in config.cleanup_policy and not batch.is_control:
        _check_keys(batch)
    if config.message_timestamp_type == "CreateTime":
        _check_timestamps(batch, config, now_ms)
        if batch.max_timestamp != greatest:
            patch_max_timestamp(records, 0, greatest)
            batch = RecordBatch(records)
    return batch


def validate_adopted(batch: RecordBatch, config: TopicConfig, now_ms: int) -> None:
    """What ``validate_appended`` checks of a client's batch, of one that has an offset and whose CRC is right.

    Nothing is put right: a max timestamp that is not that of its records is refused. Raises ApiError, as above.
    """
    _check_size(batch.size_in_bytes, config)
    complaint = _complaint_of_header(batch) or _complaint_of_client(batch)
    if batch.timestamp_type:
        complaint = complaint or "it says that its time is LogAppendTime, which only a log may say"
    if complaint:
        raise ApiError(ErrorCode.INVALID_RECORD, f"malformed batch header: {complaint}")
    greatest = _check_records(batch)
    if batch.max_timestamp != greatest:
        raise ApiError(ErrorCode.INVALID_RECORD, f"max timestamp {batch.max_timestamp}, its records' is {greatest}")
    if "compact" in config.cleanup_policy:
        _check_keys(batch)
    _check_timestamps(batch, config, now_ms)


def validate_restored(batch: RecordBatch) -> None:
    """What is checked of a batch that was in a log before, and whose CRC is right: that its records can be read.

    Raises ApiError(INVALID_RECORD), CorruptRecord for a marker that is none.
    """
    if batch.is_control and batch.record_count:
        read_marker(batch)
    elif batch.record_count:
        _check_records(batch, is_new=False)


class PreparedBatch(NamedTuple):
    """A client's batch that ``prepare`` has found good, and that is compressed as its topic wants."""

    batch: RecordBatch
    config: TopicConfig
    """The settings by which it was looked at."""
    records: "memoryview"  # noqa: UP037  mypyc looks for the bare name among this module's own
    """The batch as the client sent it."""

    def is_good_under(self, config: TopicConfig) -> bool:
        """Whether ``prepare`` would find the same under these settings; else it has to be looked at again."""
        return config is self.config or config.rule_of_batches == self.config.rule_of_batches


def prepare(records: memoryview, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """What may take long of an append by a client; on any thread. Raises what ``validate_appended`` raises, and
    ``as_topic_compresses``.
    """
    batch = validate_appended(records, config, AppendOrigin.CLIENT, now_ms)
    return PreparedBatch(as_topic_compresses(batch, config), config, records)


def is_short(records: memoryview) -> bool:
    """Whether ``prepare`` has little to do under any settings: what is neither compressed nor large."""
    return HEADER_SIZE <= len(records) <= LONG and not records[ATTRIBUTES + 1] & COMPRESSION_MASK


def has_to_be_prepared(records: memoryview, config: TopicConfig) -> bool:
    """Whether ``prepare`` has more to do than to look at the header and to walk records that are not compressed."""
    if not HEADER_SIZE <= len(records) <= config.max_message_bytes or records[MAGIC] != MAGIC_V2:
        return False  # it is refused without a look at its records
    # Walking records takes 50 us a MB, decoding them much longer.
    return bool(records[ATTRIBUTES + 1] & COMPRESSION_MASK) or config.decodes_records


def size_to_prepare(records: memoryview, config: TopicConfig) -> int:
    """How much work ``prepare`` may have at most, in bytes compressed anew; told from what costs little to see.

    More than ``LONG`` of a request is long, and by how much more is not told.
    """
    if not has_to_be_prepared(records, config):
        return 0
    part = 1 if config.decodes_records else _WALKED_AS_ONE
    most = most_decompressed(records[ATTRIBUTES + 1] & COMPRESSION_MASK, records[HEADER_SIZE:], (LONG + 1) * part)
    return max(len(records), most) // part


def batches_of_leader(records: memoryview, log_end_offset: int) -> list[RecordBatch]:
    """The batches that a leader sent to its follower, whose log ends at ``log_end_offset``.

    A batch cut short at the end is left out, since an answer ends at a byte count; so is what lies too far behind the
    first for one segment, to be fetched again. Raises CorruptRecord if one does not hold together, LogError if one
    does not lie behind all before it.
    """
    batches: list[RecordBatch] = []
    next_offset = log_end_offset
    for batch in iter_batches(records):
        batch.validate()
        if batch.base_offset < next_offset:
            raise LogError(f"the leader sent offset {batch.base_offset} where at least {next_offset} is due")
        if batch.next_offset > MAX_INT64:
            raise CorruptRecord(f"the leader sent a batch at offset {batch.base_offset} that ends beyond all offsets")
        if batch.is_control and batch.record_count:
            read_marker(batch)  # of which the log is to take note
        if batches and batch.last_offset - batches[0].base_offset > MAX_INT32:
            break  # no segment can hold both
        next_offset = batch.next_offset
        batches.append(batch)
    return batches


def as_topic_compresses(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """The batch, compressed anew where the topic's ``compression.type`` is another than the producer's.

    A marker stays as it is. Raises ApiError: INVALID_RECORD if the records cannot be decompressed, MESSAGE_TOO_LARGE
    if they are too many for the codec of the topic.
    """
    kind = _CODECS.get(config.compression_type)
    if kind is None or batch.compression is kind or batch.is_control:
        return batch
    try:
        compressed = recompress(batch, kind, config.compression_level)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    _check_size(len(compressed), config)
    return RecordBatch(memoryview(compressed))


def _check_size(size: int, config: TopicConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes={config.max_message_bytes}",
        )


def _check_records(batch: RecordBatch, *, is_new: bool = True) -> int:
    """The greatest timestamp in it, ms; -1 for none. What ``is_new`` has to be readable by Java's clients too.

    Not CORRUPT_MESSAGE: the CRC says that these are the producer's bytes, and sending them again does not help."""
    try:
        if is_new and batch.compression is CompressionType.LZ4:
            check_lz4_of_java(batch.payload)
        return check_records(batch)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {error}") from error


def _check_header(batch: RecordBatch, origin: AppendOrigin) -> None:
    complaint = _complaint_of_header(batch)
    if not complaint and batch.base_offset != 0:
        complaint = f"base offset {batch.base_offset}, where a batch that is to be given offsets has 0"
    elif not complaint and origin is AppendOrigin.CLIENT:
        complaint = _complaint_of_client(batch)
    if complaint:
        raise ApiError(ErrorCode.INVALID_RECORD, f"malformed batch header: {complaint}")


def _complaint_of_header(batch: RecordBatch) -> str | None:
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1:
        return f"{batch.record_count} records but a last offset delta of {batch.last_offset_delta}"
    if batch.attributes & COMPRESSION_MASK not in _KNOWN_CODECS:
        return f"the unknown compression code {batch.attributes & COMPRESSION_MASK}"
    if batch.attributes & ~ALL_ATTRIBUTES:
        return f"unknown attributes {batch.attributes:#x}"
    return None


def _complaint_of_client(batch: RecordBatch) -> str | None:
    if batch.is_control:
        return "clients may not write control batches"
    if batch.is_transactional and batch.producer_id <= NO_PRODUCER_ID:
        return "a transaction without a producer id"
    if batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < 0:
        return f"producer id {batch.producer_id} without a sequence"
    return None


def _with_times_of_its_own(records: memoryview, config: TopicConfig) -> RecordBatch:
    """The batch without the claim that a log has given its records their time, which only a log may make.

    Raises ApiError(INVALID_TIMESTAMP) where the log gives them that.
    """
    if config.message_timestamp_type == "LogAppendTime":
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a batch is not to say that its time is LogAppendTime")
    patch_create_time(records, 0)
    return RecordBatch(records)


def _check_timestamps(batch: RecordBatch, config: TopicConfig, now_ms: int) -> None:
    """Looks into the batch only where the topic sets a bound."""
    before, after = config.record_time_bounds_ms
    if before == _UNBOUNDED and after == _UNBOUNDED:
        return
    times = _column(batch, "timestamp")
    has_time = pc.not_equal(times, int64_scalar(NO_TIMESTAMP))
    bounds = pc.min_max(times.filter(has_time)).as_py()
    if bounds["min"] is None:
        return
    earliest, latest = now_ms - before, min(now_ms + after, MAX_INT64)
    if bounds["min"] < earliest:
        complaint = (
            f"a record's time lies {now_ms - bounds['min']} ms before the broker's; the topic allows {before} ms"
        )
        to_blame = pc.and_(has_time, pc.less(times, int64_scalar(earliest)))
        raise _refusal(ErrorCode.INVALID_TIMESTAMP, complaint, to_blame)
    if bounds["max"] > latest:
        complaint = f"a record's time lies {bounds['max'] - now_ms} ms after the broker's; the topic allows {after} ms"
        to_blame = pc.greater(times, int64_scalar(latest))
        raise _refusal(ErrorCode.INVALID_TIMESTAMP, complaint, to_blame)


def _column(batch: RecordBatch, name: str) -> pa.Array:
    decoder = ColumnarDecoder((name,))
    try:
        decoder.append(batch)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    return decoder.finish()[name]


def _check_keys(batch: RecordBatch) -> None:
    keys = _column(batch, "key")
    if keys.null_count:
        raise _refusal(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key", keys.is_null())


def _refusal(code: ErrorCode, complaint: str, to_blame: pa.Array) -> RecordsRefused:
    """Of a batch, with the places of the records that are to blame, or of the first of them."""
    places = pc.indices_nonzero(to_blame)
    if len(places) > MOST_NAMED:
        complaint = f"{complaint}; {len(places)} records are to blame, of which the first {MOST_NAMED} are named"
    return RecordsRefused(code, complaint, places[:MOST_NAMED].to_pylist())
