"""What a leader refuses of message sets, and with which code."""

import pytest
from log.samples import batch_of
from record.legacy_bytes import GZIP, entry, wrapper

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.message_sets import MOST_DECOMPRESSED, prepare_message_set
from sparklog.record.records import iter_records

NOW = 1_700_000_000_000


def prepared(data, **settings):
    config = parse(TopicConfig, {name.replace("_", "."): str(value) for name, value in settings.items()})
    return prepare_message_set(memoryview(bytearray(data)), config, NOW)


def refused(data, **settings):
    with pytest.raises(ApiError) as caught:
        prepared(data, **settings)
    return caught.value.code


def test_a_set_is_the_batch_that_it_becomes():
    found = prepared(entry(0, b"k", b"v", magic=1, timestamp=NOW) + entry(1, b"l", b"w", magic=1, timestamp=NOW))
    assert [(each.key, each.value) for each in iter_records(found.batch)] == [(b"k", b"v"), (b"l", b"w")]
    assert bytes(found.records) == bytes(found.batch.buffer)


def test_it_is_compressed_as_its_topic_wants():
    assert prepared(entry(0, None, b"v"), compression_type="gzip").batch.compression is GZIP
    assert prepared(wrapper(0, entry(0, None, b"v")), compression_type="uncompressed").batch.compression == 0


def test_a_batch_is_checked_as_any_other():
    assert prepared(batch_of(2, 3)).batch.record_count == len(list(iter_records(prepared(batch_of(2, 3)).batch)))


@pytest.mark.parametrize(
    ("data", "code", "settings"),
    [
        (b"", ErrorCode.INVALID_RECORD, {}),
        (entry(0, None, b"cut")[:-1], ErrorCode.INVALID_RECORD, {}),
        (entry(0, None, b"cut")[:16], ErrorCode.INVALID_RECORD, {}),
        (entry(0, None, b"x")[:-1] + b"y", ErrorCode.CORRUPT_MESSAGE, {}),
        (wrapper(0, entry(0, None, b"x")) * 2, ErrorCode.INVALID_RECORD, {}),
        (entry(0, None, bytes(100)), ErrorCode.MESSAGE_TOO_LARGE, {"max_message_bytes": 100}),
        (entry(0, None, bytes(60)) * 2, ErrorCode.MESSAGE_TOO_LARGE, {"max_message_bytes": 150}),
        (entry(0, None, b"x"), ErrorCode.INVALID_RECORD, {"cleanup_policy": "compact"}),
        (
            entry(0, None, b"x", magic=1, timestamp=5),
            ErrorCode.INVALID_TIMESTAMP,
            {"message_timestamp_before_max_ms": 1000},
        ),
        (wrapper(0, entry(0, None, bytes(MOST_DECOMPRESSED))), ErrorCode.INVALID_RECORD, {}),
    ],
)
def test_what_is_refused(data, code, settings):
    assert refused(data, **settings) is code


def test_a_message_without_a_time_is_taken_where_times_are_bounded():
    assert prepared(entry(0, None, b"x"), message_timestamp_before_max_ms=1000).batch.record_count == 1
