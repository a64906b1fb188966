"""The topics and partitions that a read selects: by partition, by topic, or by a pattern of topics."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparklog.spark.options.definition import Kind, invalid
from sparklog.spark.options.json_objects import json_object, whole
from sparklog.structs import TopicPartition

_EXAMPLE = '{"topicA": [0, 1], "topicB": [2]}'
_JAVA_NAMED_GROUP = re.compile(r"\(\?<(?![=!])")
"""The Kafka source takes Java's patterns. What they have in common is written alike, but for the opening of a named
group; and what only Java has is an error here, but for sets within sets (``[a-z&&[^b]]``), which ``_nests_sets`` finds.
"""
_TOKENS = re.compile(r"\\.|&&|.", re.DOTALL)


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
    """Every partition of the topics in whose name the pattern is found; internal topics are left out."""

    pattern: re.Pattern[str]


Selection = Assign | Subscribe | SubscribePattern


def _assign(name: str, text: str) -> Assign:
    topics = json_object(name, text, _EXAMPLE)
    try:
        found = {TopicPartition(topic, whole(each)) for topic, partitions in topics.items() for each in partitions}
    except (TypeError, ValueError):
        raise invalid(name, text, f"write it like {_EXAMPLE}") from None
    if not found:
        raise invalid(name, text, "it names no partition")
    return Assign(tuple(sorted(found)))


def _subscribe(name: str, text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
    if not topics:
        raise invalid(name, text, "it names no topic")
    return Subscribe(topics)


def _subscribe_pattern(name: str, text: str) -> SubscribePattern:
    if not text:
        raise invalid(name, text, "the pattern is empty")
    if _nests_sets(text):
        raise invalid(
            name, text, "sets of characters within others, and &&, are Java's alone; write | or (?!…) instead"
        )
    try:
        return SubscribePattern(re.compile(_JAVA_NAMED_GROUP.sub("(?P<", text)))
    except re.error as error:
        raise invalid(name, text, f"it is not a regular expression: {error}") from error


def _nests_sets(pattern: str) -> bool:
    is_inside = False
    for token in _TOKENS.findall(pattern):
        if is_inside and token in ("[", "&&"):
            return True
        is_inside = token == "[" or (is_inside and token != "]")
    return False


PARTITIONS = Kind(_assign, f"JSON: `{_EXAMPLE}`")
TOPICS = Kind(_subscribe, "topics, separated by commas")
TOPIC_PATTERN = Kind(_subscribe_pattern, "regular expression")
