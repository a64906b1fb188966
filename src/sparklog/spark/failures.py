"""What the client raises, in the words of a Spark user: a stable code, then the topic, the broker, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, DataSourceError, ErrorCode, SparklogError

_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "SPARKLOG_UNKNOWN_TOPIC",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "SPARKLOG_UNKNOWN_TOPIC",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.MESSAGE_TOO_LARGE: "SPARKLOG_RECORD_TOO_LARGE",
    ErrorCode.RECORD_LIST_TOO_LARGE: "SPARKLOG_RECORD_TOO_LARGE",
}


@contextmanager
def translated() -> Iterator[None]:
    """Turn the client's errors into DataSourceError."""
    try:
        yield
    except DataSourceError:
        raise
    except SparklogError as error:
        raise DataSourceError(_code_of(error), str(error)) from error


def _code_of(error: SparklogError) -> str:
    if isinstance(error, ApiError):
        return _CODES.get(error.code, "SPARKLOG_BROKER_ERROR")
    if isinstance(error, ConnectionFailed):
        return "SPARKLOG_BROKER_UNREACHABLE"
    return "SPARKLOG_CORRUPT_RECORD" if isinstance(error, CorruptRecord) else "SPARKLOG_CLIENT_ERROR"
