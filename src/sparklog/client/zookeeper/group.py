"""A group in ZooKeeper, without I/O: where its znodes lie, what they hold, and who owns what.

Invariant: the share of every owner is a function of the members' registrations and of the topic's assignment alone, so
that all members compute the same; each partition of a topic with owners has exactly one.

Source: the Kafka paper, section 3.2, for the layout ``broker-partition``; Kafka 1.1's ``ZookeeperConsumerConnector``,
``TopicCount``, ``TopicFilter`` and ``RangeAssignor`` for the layout ``kafka`` and the registration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from sparklog import regular_expression
from sparklog.errors import ConfigError, MalformedZnode
from sparklog.structs import INTERNAL_TOPICS
from sparklog.zk.znodes import CONSUMERS

_VERSION = 1
_MOST_STREAMS = 10_000
"""Of a member. Every member makes a name for each stream of all."""
_NAME = re.compile(r"(?:-?[0-9]{1,10}-)?(?P<partition>[0-9]{1,10})")
_ID = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")
_QUOTES = "\"'"


class Layout(Enum):
    """How claims and offsets are named, and by which rule partitions are shared."""

    BROKER_PARTITION = "broker-partition"
    """The first design: ``B-P``, and the ceiling of partitions over owners."""
    KAFKA = "kafka"
    """Kafka 0.8 to 1.1: ``P``, and the floor; the first owners have one more."""


class Pattern(Enum):
    """What the names in a subscription are."""

    STATIC = "static"
    """Topics."""
    WHITE_LIST = "white_list"
    """One regular expression; the topics whose whole name matches it."""
    BLACK_LIST = "black_list"
    """One regular expression; the topics whose whole name does not match it."""


class Subscription(NamedTuple):
    """What a member reads: the number of its streams by topic, or of its one expression."""

    pattern: Pattern
    streams: Mapping[str, int]

    def streams_of(self, topic: str, exclude_internal: bool = True) -> int:
        """How many streams read the topic; ``exclude_internal`` is about expressions."""
        if self.pattern is Pattern.STATIC:
            return self.streams.get(topic, 0)
        ((expression, count),) = self.streams.items()
        if exclude_internal and topic in INTERNAL_TOPICS:
            return 0
        matches = _matches(expression, topic)
        return count if matches == (self.pattern is Pattern.WHITE_LIST) else 0

    def topics(self, existing: Iterable[str], exclude_internal: bool = True) -> tuple[str, ...]:
        """Those of the existing topics that it reads, sorted."""
        return tuple(sorted(each for each in set(existing) if self.streams_of(each, exclude_internal)))


def static_subscription(streams: Mapping[str, int]) -> Subscription:
    """These topics, each in so many streams. Raises ConfigError."""
    if not streams:
        raise ConfigError("a consumer subscribes to at least one topic, such as {'clicks': 1}")
    for topic, count in streams.items():
        if not topic or "/" in topic:
            raise ConfigError(f"{topic!r} is not a topic's name")
        _check_streams(count)
    return Subscription(Pattern.STATIC, dict(streams))


def filter_subscription(pattern: Pattern, expression: str, streams: int) -> Subscription:
    """One expression, read as Kafka reads it: a comma is an or, blanks and quotes around it count for nothing.

    Every member computes the shares of all, so each follows the expressions of the others, in RE2's syntax. Raises
    ConfigError for one that is empty, or that is none there.
    """
    _check_streams(streams)
    plain = expression.strip().replace(",", "|").replace(" ", "").strip(_QUOTES)
    try:
        _matches(plain, "")
    except ValueError as error:
        raise ConfigError(f"{expression!r} is not a regular expression of topics: {error}") from error
    if not plain:
        raise ConfigError("a filter of topics is a regular expression, such as 'clicks.*', and this one is empty")
    return Subscription(pattern, {plain: streams})


@lru_cache(maxsize=10_000)
def _matches(expression: str, topic: str) -> bool:
    """Raises ValueError for what is no expression."""
    return bool(regular_expression.matching(expression, [topic]))


def _check_streams(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_STREAMS:
        raise ConfigError(f"a topic is read in 1 to {_MOST_STREAMS} streams, not in {count!r}")


# who is in the group


def group_path(group: str) -> str:
    """Raises ConfigError for a name that no znode can have."""
    return f"{CONSUMERS}/{_checked(group, 'group.id')}"


def ids_path(group: str) -> str:
    """The folder of the members."""
    return f"{group_path(group)}/ids"


def id_path(group: str, consumer: str) -> str:
    """A member. Raises ConfigError for a name that no znode can have."""
    return f"{ids_path(group)}/{_checked(consumer, 'consumer.id')}"


def consumer_id(group: str, host: str, now_ms: int, random_bits: int) -> str:
    """An id as Kafka's consumers make theirs: group, host, time, and the first eight digits of a UUID."""
    return f"{group}_{host}-{now_ms}-{random_bits & 0xFFFFFFFF:08x}"


def owner_name(consumer: str, stream: int) -> str:
    """What one stream of a member claims partitions as."""
    return f"{consumer}-{stream}"


def _checked(name: str, setting: str) -> str:
    if not _ID.fullmatch(name) or name in (".", ".."):
        raise ConfigError(f"{setting}={name!r} cannot be the name of a znode: it is empty, or has a slash or the like")
    return name


class Member(NamedTuple):
    """A registered consumer."""

    id: str
    subscription: Subscription
    layout: Layout = Layout.KAFKA


def encode_member(member: Member, now_ms: int) -> bytes:
    """As Kafka's consumers write it; the first design's layout is said beside that."""
    value: dict[str, object] = {
        "version": _VERSION,
        "subscription": dict(member.subscription.streams),
        "pattern": member.subscription.pattern.value,
        "timestamp": str(now_ms),
    }
    if member.layout is not Layout.KAFKA:
        value["layout"] = member.layout.value
    return json.dumps(value, separators=(",", ":")).encode()


def decode_member(path: str, data: bytes) -> Member:
    """Raises MalformedZnode."""
    try:
        value = json.loads(data)
        pattern = Pattern(value["pattern"])
        streams = {topic: _count(count) for topic, count in value["subscription"].items()}
        layout = Layout(value.get("layout", Layout.KAFKA.value))
        if pattern is not Pattern.STATIC and len(streams) != 1:
            raise ValueError(f"{len(streams)} expressions")
        if pattern is not Pattern.STATIC:
            _matches(next(iter(streams)), "")
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise MalformedZnode(f"znode {path} does not hold what a consumer writes: {error!r}") from error
    return Member(path.rpartition("/")[2], Subscription(pattern, streams), layout)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_STREAMS:
        raise ValueError(f"{value!r} streams")
    return value


# claims and offsets


def owners_path(group: str, topic: str) -> str:
    """The folder of the claims of a topic."""
    return f"{group_path(group)}/owners/{topic}"


def offsets_path(group: str, topic: str) -> str:
    """The folder of the offsets of a topic."""
    return f"{group_path(group)}/offsets/{topic}"


def partition_name(layout: Layout, home: int, partition: int) -> str:
    """What the claim and the offset of a partition are called in their folders."""
    return f"{home}-{partition}" if layout is Layout.BROKER_PARTITION else str(partition)


def partition_of(name: str) -> int | None:
    """The partition that such a name is of, in either layout; None for a stranger's."""
    found = _NAME.fullmatch(name)
    return int(found["partition"]) if found else None


def encode_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_offset(path: str, data: bytes) -> int:
    """Raises MalformedZnode."""
    if not re.fullmatch(rb"[0-9]{1,19}", data) or int(data) >= 1 << 63:
        raise MalformedZnode(f"znode {path} holds no offset, but {data[:40]!r}")
    return int(data)


# who owns what


def owners_of(members: Iterable[Member], topic: str, exclude_internal: bool = True) -> list[str]:
    """The owners that share a topic, in the order in which every member sorts them (Java's order of texts)."""
    names = [
        owner_name(each.id, stream)
        for each in members
        for stream in range(each.subscription.streams_of(topic, exclude_internal))
    ]
    return sorted(set(names), key=lambda name: name.encode("utf-16-be"))


def assign(layout: Layout, homes: Mapping[int, int], owners: Sequence[str]) -> dict[int, str]:
    """The owner of each partition of a topic. ``homes``: the broker of each partition; ``owners`` are sorted.

    Empty where there are no owners.
    """
    if not owners:
        return {}
    if layout is Layout.BROKER_PARTITION:
        order = sorted(homes, key=lambda partition: (homes[partition], partition))
        each = -(-len(order) // len(owners))  # the ceiling
        return {partition: owners[place // each] for place, partition in enumerate(order)}
    order = sorted(homes)
    each, more = divmod(len(order), len(owners))
    starts = [each * place + min(place, more) for place in range(len(owners) + 1)]
    return {
        partition: owner
        for owner, start, end in zip(owners, starts, starts[1:], strict=False)
        for partition in order[start:end]
    }


def other_layout(members: Iterable[Member], layout: Layout) -> Member | None:
    """A member that shares by the other rule, if there is one."""
    return next((each for each in members if each.layout is not layout), None)
