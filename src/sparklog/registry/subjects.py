"""Under which subject of the registry a schema stands, by the strategies of Kafka's serializers."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.errors import ConfigError, SerializationError

SubjectName = Callable[[str, bool, str], str]
"""Topic, whether it is of keys, the full name of the record (empty if it has none) → subject."""


def _by_topic(topic: str, is_key: bool, _record: str) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def _by_record(_topic: str, _is_key: bool, record: str) -> str:
    if not record:
        raise SerializationError(
            "the subject is named by the record, and the schema has no name: give it one (of JSON Schema it is the"
            " title), or take TopicNameStrategy"
        )
    return record


def _by_topic_and_record(topic: str, is_key: bool, record: str) -> str:
    return f"{topic}-{_by_record(topic, is_key, record)}"


_STRATEGIES: dict[str, SubjectName] = {
    "TopicNameStrategy": _by_topic,
    "RecordNameStrategy": _by_record,
    "TopicRecordNameStrategy": _by_topic_and_record,
}


def subject_name(strategy: str | SubjectName) -> SubjectName:
    """The strategy of that name, with or without Java's package, or the function itself. Raises ConfigError."""
    if callable(strategy):
        return strategy
    found = _STRATEGIES.get(strategy.rpartition(".")[2])
    if found is None:
        raise ConfigError(f"there is no strategy {strategy!r} for subjects; there are: {', '.join(_STRATEGIES)}")
    return found
