"""Translates the client's errors for Spark users: a stable code, the topic or broker, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.config.job_clients import Rights
from sparklog.errors import (
    ApiError,
    AuthenticationFailed,
    BatchRefused,
    ConnectionFailed,
    CorruptRecord,
    DataSourceError,
    DelegationTokenRefused,
    ErrorCode,
    RemoteProtocolError,
    SparklogError,
)
from sparklog.structs import DECISIONS_TOPIC

_LONGEST_KEY = 60
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "SPARKLOG_UNKNOWN_TOPIC",
    ErrorCode.UNKNOWN_TOPIC_ID: "SPARKLOG_UNKNOWN_TOPIC",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "SPARKLOG_INVALID_TOPIC",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "SPARKLOG_NOT_AUTHORIZED",
    ErrorCode.MESSAGE_TOO_LARGE: "SPARKLOG_RECORD_TOO_LARGE",
    ErrorCode.RECORD_LIST_TOO_LARGE: "SPARKLOG_RECORD_TOO_LARGE",
}

_CODES_BY_KIND: dict[type[SparklogError], str] = {
    DelegationTokenRefused: "SPARKLOG_TOKEN_ENDED",
    AuthenticationFailed: "SPARKLOG_NOT_AUTHENTICATED",
    ConnectionFailed: "SPARKLOG_BROKER_UNREACHABLE",
    CorruptRecord: "SPARKLOG_CORRUPT_RECORD",
    RemoteProtocolError: "SPARKLOG_NOT_A_BROKER",
}
_ADVICE_BY_CODE = {
    "SPARKLOG_BROKER_UNREACHABLE": "see that kafka.bootstrap.servers names a listener that this machine can reach, and"
    " the addresses that the brokers advertise too, and that kafka.security.protocol is that listener's",
    "SPARKLOG_NOT_AUTHENTICATED": "see kafka.sasl.mechanism, kafka.sasl.jaas.config and kafka.ssl.*",
    "SPARKLOG_TOKEN_ENDED": "start again: with the option taskToken (--task-token) there is a new token then, and the"
    " batch is done again; where tasks take longer than their token lasts, give them one that lasts longer",
    "SPARKLOG_CORRUPT_RECORD": "the broker's disk or network changed it, or a broker took it that does not look at"
    " records; another replica, if there is one, may have it",
    "SPARKLOG_NOT_A_BROKER": "what answers there does not speak Kafka's protocol as it should",
}
_TO_NUMBER_BATCHES = "WRITE on the topic that it writes to (or IDEMPOTENT_WRITE on the cluster)"
_OF_DECISIONS = "CREATE (unless the topic is there), READ and WRITE"


def first_line(error: Exception) -> str:
    """The first line of an error that has words in it: Spark's go on with a plan or a stack."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_SAID = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)


def words_of(error: Exception) -> str:
    """What an error of Spark's says to people: the outermost and the innermost sentence with a code of its own.

    Between them, and behind, are names of classes and stacks. Of an error without codes it is what Python says behind
    its stack, or else the first line, or that of the error in the JVM.
    """
    text = text_of(error)
    said = list(dict.fromkeys(each.strip() for each in _SAID.findall(text)))
    if said:
        return "; ".join(said if len(said) < 3 else (said[0], said[-1]))
    raised = _RAISED.search(text)
    if raised:
        return raised[1]
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


_OF_A_DISK = re.compile(r"(?:[\w.$]+: )*(?:java\.io|org\.apache\.hadoop)\.[\w.$]+: (.*)")


def refusal_of_disk(error: Exception) -> str | None:
    """What a file system said that refused the JVM something, without names of classes; None for other errors."""
    found = _OF_A_DISK.match(first_line(Exception(text_of(error))))
    return None if found is None else found[1]


def text_of(error: Exception) -> str:
    """All that an error of Spark's says, with the error in the JVM if there is one."""
    java = getattr(error, "java_exception", None)
    return str(error) if java is None else f"{java.toString()}\n{error}"


@contextmanager
def translated(topic_right: str = "READ") -> Iterator[None]:
    """Raises the client's errors as DataSourceError. ``topic_right``: what is needed of the topics."""
    try:
        yield
    except DataSourceError:
        raise
    except SparklogError as error:
        code = _code_of(error)
        text = f"{error}{_largest_row(error)}"
        advice = _ADVICE_BY_CODE.get(code) or _missing_right(error, topic_right, _TO_NUMBER_BATCHES)
        raise DataSourceError(code, f"{text}; {advice}" if advice else text) from error


@contextmanager
def rights_named(needed: Rights) -> Iterator[None]:
    """Add to an ApiError that refuses something which right the user lacks, as ``translated`` does. Raises ApiError."""
    try:
        yield
    except ApiError as error:
        missing = _missing_right(error, needed.topic, needed.cluster or "DESCRIBE on the cluster")
        if not missing:
            raise
        raise ApiError(error.code, f"{error}; {missing}") from error


def _missing_right(error: SparklogError, topic_right: str, cluster_right: str) -> str:
    """Which right the user lacks, of what the error names; empty where that is not what is wrong."""
    if not isinstance(error, ApiError):
        return ""
    of_topic = _OF_DECISIONS if DECISIONS_TOPIC in str(error) else topic_right
    right = {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"{of_topic} on the topic",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ on the group",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: cluster_right,
    }.get(error.code)
    return f"its user needs the right {right} (docs/security.md: What Spark needs)" if right else ""


def row_named(key: str | bytes | None, size: int) -> str:
    """A row in a message: its key, shortened if it is long, and the bytes of its key and value."""
    if isinstance(key, bytes):
        key = key[: 2 * _LONGEST_KEY].decode("utf-8", "backslashreplace")
    name = "null" if key is None else repr(key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…")
    return f"the row with key {name} and {size} bytes"


def _largest_row(error: SparklogError) -> str:
    """Text that names the largest row of a batch that a broker refused as too large; empty for other errors."""
    if not isinstance(error, BatchRefused) or error.code not in _TOO_LARGE:
        return ""
    from sparklog.record.batch import RecordBatch
    from sparklog.record.records import iter_records

    records = iter_records(RecordBatch(error.batch))
    size, key = max(((len(each.key or b"") + len(each.value or b""), each.key) for each in records), key=_by_size)
    return f"; its largest is {row_named(None if key is None else bytes(key), size)}"


def _by_size(row: tuple[int, bytes | None]) -> int:
    return row[0]


def _code_of(error: SparklogError) -> str:
    if isinstance(error, ApiError):
        return _CODES.get(error.code, "SPARKLOG_BROKER_ERROR")
    for kind, code in _CODES_BY_KIND.items():
        if isinstance(error, kind):
            return code
    return "SPARKLOG_CLIENT_ERROR"
