"""Message sets, as producers from before Kafka 0.11 send them: what is checked of them before they are batches.

Source: Kafka 3.9, ``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator``.
"""

from __future__ import annotations

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.validator import PreparedBatch, prepare
from sparklog.record.layout import MAGIC, MAGIC_V2
from sparklog.record.legacy.conversion import LargeRecords, UnfitRecords, to_batch

MOST_DECOMPRESSED = 8 << 20
"""Bytes of a compressed set, unless its topic takes batches of half as many: it is read message by message, for two
seconds at the slowest.
"""


def prepare_message_set(records: memoryview, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """The set as one batch that is checked as any other; a batch that such a producer sends is checked as it is.

    On any thread. Raises ApiError: CORRUPT_MESSAGE for a wrong CRC and what does not hold together,
    INVALID_RECORD for what cannot be decompressed, MESSAGE_TOO_LARGE, and what ``prepare`` raises.
    """
    if len(records) > MAGIC and records[MAGIC] >= MAGIC_V2:
        return prepare(records, config, now_ms)
    try:
        batch = to_batch(records, max(MOST_DECOMPRESSED, 2 * config.max_message_bytes), config.max_message_bytes)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except LargeRecords as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{error} (max.message.bytes)") from error
    except UnfitRecords as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    if batch is None:
        raise ApiError(ErrorCode.INVALID_RECORD, f"no whole message in {len(records)} bytes")
    return prepare(memoryview(bytearray(batch)), config, now_ms)
