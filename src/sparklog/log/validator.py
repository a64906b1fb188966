"""What a leader checks of the batches a producer sends, before they touch the disk.

Nothing is decoded unless the topic demands it. Source: Kafka 3.9, ``LogValidator`` and
``UnifiedLog.analyzeAndValidateRecords``.
"""

from __future__ import annotations

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import ColumnarDecoder
from sparklog.record.compression import CompressionType
from sparklog.record.layout import MAGIC, MAGIC_V2, NO_PRODUCER_ID
from sparklog.record.recompression import recompress

_CODECS = {"uncompressed": CompressionType.NONE} | {kind.name.lower(): kind for kind in list(CompressionType)[1:]}


def validate_produced(records: memoryview, config: TopicConfig) -> RecordBatch:
    """The one batch that ``records`` holds, checked whole: length, size limit, CRC, header sanity.

    Raises ApiError with the code that Kafka answers: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD,
    UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    if len(records) > MAGIC and records[MAGIC] < MAGIC_V2:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {records[MAGIC]} is not accepted; only record batches (format 2) are",
        )
    try:
        batch = RecordBatch(records)
        if batch.size_in_bytes > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {batch.size_in_bytes} bytes is larger than max.message.bytes={config.max_message_bytes}",
            )
        batch.validate()
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if batch.size_in_bytes != len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch a request")
    _check_header(batch)
    if "compact" in config.cleanup_policy:
        _check_keys(batch)
    return batch


def as_topic_compresses(batch: RecordBatch, config: TopicConfig) -> memoryview:
    """The batch's bytes, compressed anew where the topic's ``compression.type`` is another than the producer's.

    Raises ApiError(CORRUPT_MESSAGE) if its records cannot be decompressed.
    """
    kind = _CODECS.get(config.compression_type)
    if kind is None or batch.compression is kind:
        return batch.buffer
    try:
        return memoryview(recompress(batch, kind))
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _check_header(batch: RecordBatch) -> None:
    complaint = None
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1:
        complaint = f"{batch.record_count} records but a last offset delta of {batch.last_offset_delta}"
    elif batch.is_control:
        complaint = "clients may not write control batches"
    elif batch.is_transactional:
        complaint = "transactions are not served yet"
    elif batch.producer_id != NO_PRODUCER_ID and batch.base_sequence < 0:
        complaint = f"producer id {batch.producer_id} without a sequence"
    if complaint:
        raise ApiError(ErrorCode.INVALID_RECORD, f"malformed batch header: {complaint}")


def _check_keys(batch: RecordBatch) -> None:
    decoder = ColumnarDecoder(("key",))
    try:
        decoder.append(batch)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if decoder.finish()["key"].null_count:
        raise ApiError(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key")
