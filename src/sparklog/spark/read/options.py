"""The options of reading with ``format("sparklog")``: the names, defaults and checks of Spark's Kafka source.

Spark hands the keys over in lower case. Whatever starts with ``kafka.`` goes to the client (``client.config``). Every
refusal is a DataSourceError that names the option.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from sparklog.client.cluster.config import ClientConfig
from sparklog.config.definition import parse
from sparklog.errors import ConfigError, DataSourceError
from sparklog.record.layout import MAX_INT64
from sparklog.spark.raw_options import RawOptions, client_config, invalid, parsed, unsupported
from sparklog.spark.read.direct_options import DirectOptions
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
_NEGATIVES = "only -2 (earliest) and -1 (latest) may be negative"

_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_TRIGGER_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitToGroup",
)
_REFUSED_READING = {
    "auto.offset.reset": "set the option 'startingOffsets' instead; Spark keeps track of what was read",
    "key.deserializer": "keys arrive as binary; decode them in Spark",
    "value.deserializer": "values arrive as binary; decode them in Spark",
    "enable.auto.commit": "the source commits no offsets; Spark's checkpoint holds them",
    "interceptor.classes": "interceptors are Java classes",
}


class Edge(Enum):
    """An end of a partition as it is when asked."""

    EARLIEST = EARLIEST_OFFSET
    LATEST = LATEST_OFFSET


@dataclass(frozen=True)
class SpecificOffsets:
    """An offset for every partition, -2 and -1 meaning its ends."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class SpecificTimestamps:
    """A timestamp (ms) for every partition: the first record at or after it; -2 and -1 mean its ends."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class GlobalTimestamp:
    """One timestamp (ms) for all partitions, -2 and -1 meaning their ends."""

    timestamp: int


Limit = Edge | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


@dataclass(frozen=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Subscribe:
    """Every partition of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """Every partition of the topics in whose name the pattern is found, but the cluster's own."""

    pattern: re.Pattern[str]


Selection = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True)
class ReadOptions:
    """What a read was asked to do. Counts are records or offsets, times milliseconds; None is no limit."""

    client: ClientConfig
    selection: Selection
    starting: Limit
    ending: Limit
    latest_if_no_match: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    direct: DirectOptions
    directories: tuple[str, ...]
    """Log directories that are read instead of asking a cluster."""
    commit_to_group: str | None

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> ReadOptions:
        """Of ``spark.read``: from the earliest to the latest offset by default, and never from the latest."""
        given = RawOptions(options)
        starting = _limit(given, "starting", Edge.EARLIEST)
        ending = _limit(given, "ending", Edge.LATEST)
        _refuse_edge("startingOffsets", starting, Edge.LATEST)
        _refuse_edge("endingOffsets", ending, Edge.EARLIEST)
        _check_same_partitions(starting, ending)
        for name in filter(given.has, _TRIGGER_ONLY):
            _log.warning("option '%s' means nothing to a batch query", name)
        return cls._from(given, starting, ending)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> ReadOptions:
        """Of ``spark.readStream``: from the latest offset by default, and without an end."""
        given = RawOptions(options)
        for name in filter(given.has, _ENDINGS):
            raise unsupported(name, "a streaming query has no end")
        if given.has("path"):
            raise unsupported("path", "log directories are read by batch queries; a stream needs a broker")
        return cls._from(given, _limit(given, "starting", Edge.LATEST), Edge.LATEST)

    @classmethod
    def _from(cls, given: RawOptions, starting: Limit, ending: Limit) -> ReadOptions:
        given.warn_of_unknown()
        minimum = given.integer("minOffsetsPerTrigger", least=1)
        maximum = given.integer("maxOffsetsPerTrigger", least=1)
        if minimum is not None and maximum is not None and minimum > maximum:
            raise invalid("minOffsetsPerTrigger", str(minimum), f"it exceeds maxOffsetsPerTrigger, {maximum}")
        directories = _directories(given)
        return cls(
            client=client_config(given, _REFUSED_READING) if not directories else _without_cluster(given),
            selection=_selection(given),
            starting=starting,
            ending=ending,
            latest_if_no_match=given.word("startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            include_headers=given.boolean("includeHeaders", default=False),
            min_partitions=given.integer("minPartitions", least=1),
            max_records_per_partition=given.integer("maxRecordsPerPartition", least=1),
            max_bytes_per_partition=given.size("maxBytesPerPartition"),
            max_offsets_per_trigger=maximum,
            max_bytes_per_trigger=given.size("maxBytesPerTrigger"),
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
            offset_retries=given.integer("fetchOffset.numRetries", least=0, default=3) or 0,
            offset_retry_interval_ms=given.integer("fetchOffset.retryIntervalMs", least=0, default=1000) or 0,
            direct=DirectOptions.of(given),
            directories=directories,
            commit_to_group=_group(given),
        )


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column ``headers``."""
    return RawOptions(options).boolean("includeHeaders", default=False)


_JAVA_NAMED_GROUP = re.compile(r"\(\?<(?![=!])")
"""Patterns are Java's in the Kafka source; what the two dialects write differently is the opening of a named group."""


def _directories(given: RawOptions) -> tuple[str, ...]:
    """The option ``path``: local directories, a comma between them."""
    text = given.get("path")
    if text is None:
        return ()
    found = tuple(filter(None, (_local(part.strip()) for part in text.split(","))))
    if not found:
        raise invalid("path", text, "it names no log directory")
    if given.has("kafka.bootstrap.servers"):
        raise DataSourceError(
            "SPARKLOG_CONFLICTING_OPTIONS",
            "options 'path' and 'kafka.bootstrap.servers' are both given: read log directories, or ask a cluster",
        )
    return found


def _local(text: str) -> str:
    path = re.sub(r"^file:(//)?(?=/)", "", text)
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", path):
        raise invalid("path", text, "log directories are read from local or mounted file systems")
    return path


def _without_cluster(given: RawOptions) -> ClientConfig:
    """Of the client's settings those that say what is seen."""
    names = ("isolation.level", "check.crcs")
    try:
        return parse(ClientConfig, {name: text for name, text in given.kafka().items() if name in names})
    except ConfigError as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"option kafka.{error}") from error


def _selection(given: RawOptions) -> Selection:
    named = [name for name in _SELECTIONS if given.has(name)]
    if len(named) != 1:
        said = f"{' and '.join(named)} are given" if named else "none is given"
        raise DataSourceError(
            "SPARKLOG_CONFLICTING_OPTIONS" if named else "SPARKLOG_MISSING_OPTION",
            f"exactly one of the options {', '.join(_SELECTIONS)} must be given; {said}",
        )
    name = named[0]
    text = (given.get(name) or "").strip()
    if name == "assign":
        return Assign(_partitions(text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
        if not topics:
            raise invalid(name, text, "it names no topic")
        return Subscribe(topics)
    if not text:
        raise invalid(name, text, "the pattern is empty")
    try:
        return SubscribePattern(re.compile(_JAVA_NAMED_GROUP.sub("(?P<", text)))
    except re.error as error:
        raise invalid(name, text, f"it is not a regular expression: {error}") from error


def _group(given: RawOptions) -> str | None:
    group = given.get("commitToGroup")
    if group is not None and not group.strip():
        raise invalid("commitToGroup", group, "it is the name of a consumer group")
    return group.strip() if group else None


def _limit(given: RawOptions, side: str, default: Edge) -> Limit:
    """Where to start or end: the first of the three options that is given, in the connector's precedence."""
    whole, by_partition, offsets = (f"{side}{rest}" for rest in ("Timestamp", "OffsetsByTimestamp", "Offsets"))
    if (text := given.get(whole)) is not None:
        time = parsed(whole, text, _time, "a timestamp in milliseconds")
        if time < EARLIEST_OFFSET:
            raise invalid(whole, text, _NEGATIVES)
        return GlobalTimestamp(time)
    if (text := given.get(by_partition)) is not None:
        return SpecificTimestamps(_by_partition(by_partition, text, '{"topicA": {"0": 1700000000000, "1": -1}}'))
    text = given.get(offsets)
    if text is None:
        return default
    if text.strip().upper() in Edge.__members__:
        return Edge[text.strip().upper()]
    return SpecificOffsets(_by_partition(offsets, text, 'earliest, latest or {"topicA": {"0": 23, "1": -1}}'))


def _refuse_edge(name: str, limit: Limit, edge: Edge) -> None:
    word = edge.name.lower()
    if limit is edge:
        raise invalid(name, word, f"a batch query may have any {name} but {word}")
    if isinstance(limit, SpecificOffsets):
        for tp, offset in limit.offsets.items():
            if offset == edge.value:
                raise invalid(name, str(offset), f"partition {tp} may not be {word} in a batch query")


def _check_same_partitions(starting: Limit, ending: Limit) -> None:
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        first, last, unit = starting.offsets, ending.offsets, "Offsets"
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        first, last, unit = starting.timestamps, ending.timestamps, "OffsetsByTimestamp"
    else:
        return
    if first.keys() != last.keys():
        only = ", ".join(str(tp) for tp in sorted(first.keys() ^ last.keys()))
        raise invalid(f"ending{unit}", only, f"the partitions differ from those of starting{unit}")
    for tp, start in first.items():
        if 0 <= last[tp] < start:
            raise invalid(f"ending{unit}", str(last[tp]), f"partition {tp} starts at {start}, after that")


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topicA": [0, 1], "topicB": [2]}'
    parsed = _json_object("assign", text, example)
    try:
        found = {TopicPartition(topic, _whole(each)) for topic, each_list in parsed.items() for each in each_list}
    except (TypeError, ValueError):
        raise invalid("assign", text, f"write it like {example}") from None
    if not found:
        raise invalid("assign", text, "it names no partition")
    return tuple(sorted(found))


def _by_partition(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    parsed = _json_object(name, text, example)
    try:
        given = [
            (TopicPartition(topic, int(partition)), _whole(value))
            for topic, partitions in parsed.items()
            for partition, value in partitions.items()
        ]
    except (TypeError, ValueError, AttributeError):
        raise invalid(name, text, f"write it like {example}") from None
    for tp, value in given:
        if value < EARLIEST_OFFSET:
            raise invalid(name, text, f"partition {tp} has {value}; {_NEGATIVES}")
    return _once(name, text, "partition", given)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value > MAX_INT64:
        raise ValueError(value)
    return value


def _time(text: str) -> int:
    return _whole(int(text))


class _JsonObject(list[tuple[str, Any]]):
    """The members of an object as they are written, where a name may come twice."""

    def items(self) -> list[tuple[str, Any]]:
        return self


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """An object, and those in it as _JsonObject."""
    try:
        parsed = json.loads(text, object_pairs_hook=_JsonObject)
    except (json.JSONDecodeError, RecursionError):
        parsed = None
    if not isinstance(parsed, _JsonObject):
        raise invalid(name, text, f"write it like {example}")
    return _once(name, text, "topic", parsed)


def _once(name: str, text: str, what: str, given: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    found: dict[K, Any] = {}
    for key, value in given:
        if key in found:
            raise invalid(name, text, f"it names {what} {key} twice")
        found[key] = value
    return found
