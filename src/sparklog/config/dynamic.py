"""Settings that change while brokers run: what operations make of stored properties, and what lies over what.

A topic's setting is the topic's own, else this broker's dynamic one, else the cluster's dynamic one, else what the
broker was started with, else the default; a broker's is the same without the first. Source: Kafka 3.9,
``DynamicBrokerConfig``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from sparklog.config.broker import BrokerConfig, topic_synonyms
from sparklog.config.definition import ConfigType, Definition, definitions, parse
from sparklog.config.kafka_broker import CONTROL_PLANE, LEFT_OUT, LIVE
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError

_logger = logging.getLogger(__name__)


class Operation(IntEnum):
    """What to do with one stored setting (the numbers of ``IncrementalAlterConfigsRequest.json``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One operation; ``value`` counts for nothing in a DELETE."""

    name: str
    operation: Operation
    value: str = ""


class Source(IntEnum):
    """Where a value comes from (Kafka's numbers, ``DescribeConfigsResponse.json``)."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6


class Synonym(NamedTuple):
    """A value that a setting has, or would have if none stood before it."""

    name: str
    text: str
    source: Source


TOPIC_DEFINITIONS: dict[str, Definition] = {name: each for name, (_, each) in definitions(TopicConfig).items()}
_OWN_DEFINITIONS: dict[str, Definition] = {
    name: definition
    for name, (_, definition) in definitions(BrokerConfig).items()
    if name
    in (
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "producer.id.expiration.ms",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
        "sparklog.slow.request.log.ms",
    )
}
DYNAMIC_DEFINITIONS: dict[str, Definition] = (
    _OWN_DEFINITIONS | LIVE | {own_name: TOPIC_DEFINITIONS[name] for own_name, name in topic_synonyms().items()}
)
"""The broker settings that may change while it runs: topics' defaults, limits on connections and on copying, how long
producers are remembered, what compaction may use, which requests are slow, and a few of Kafka's that mean nothing here.
The rest is read at the start.
"""


def apply_changes(
    properties: Mapping[str, str], changes: Iterable[Change], table: Mapping[str, Definition]
) -> dict[str, str]:
    """What the changes make of the stored properties. Raises ConfigError unless every value they set is allowed.

    APPEND and SUBTRACT begin with the stored list, or the definition's default. As in Kafka 3.9
    (``ConfigAdminManager.prepareIncrementalConfigs``) they take items as they are written: a blank after a comma is a
    part of the next one, and what stands there twice is subtracted once. What was stored before and is not touched may
    be anything.
    """
    result = dict(properties)
    for change in changes:
        if change.operation is Operation.DELETE:
            result.pop(change.name, None)
            continue
        definition = table.get(change.name)
        if definition is None:
            parse(TopicConfig, {change.name: change.value})  # says which names are near
            raise ConfigError(f"unknown setting {change.name!r}")
        text = change.value
        if change.operation is not Operation.SET:
            text = _edited(definition, result.get(change.name), change)
        definition.parse(text)
        result[change.name] = text
    return result


def _edited(definition: Definition, stored: str | None, change: Change) -> str:
    if definition.kind is not ConfigType.LIST:
        raise ConfigError(f"{change.name} is not a list: {change.operation.name.lower()} is not allowed")
    items = [*definition.default] if stored is None else [each for each in stored.split(",") if each]
    named = change.value.split(",")
    if change.operation is Operation.APPEND:
        return ",".join([*items, *(each for each in named if each not in items)])
    for each in named:
        if each in items:
            items.remove(each)
    return ",".join(items)


def check_dynamic(names: Iterable[str]) -> None:
    """Raises ConfigError if one of these broker settings cannot change while it runs."""
    known = definitions(BrokerConfig).keys() | LEFT_OUT | {CONTROL_PLANE}
    for name in names:
        if name not in DYNAMIC_DEFINITIONS:
            what = "is read when a broker starts and cannot change while it runs" if name in known else "is not known"
            raise ConfigError(f"broker setting {name!r} {what}")


@dataclass(frozen=True)
class Layers:
    """A broker's settings in force: immutable, a change makes new ones.

    ``broker`` and ``cluster`` are dynamic properties as they are stored. What does not fit there (a Kafka broker may
    have written it) counts for nothing.
    """

    static: BrokerConfig
    broker: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        """What a topic without settings of its own has."""
        names = topic_synonyms()
        config = self.static.topic_defaults
        for name, text in self._stored():
            if name in _OWN_DEFINITIONS or name in LIVE:
                continue
            if name not in names:  # what a Kafka broker keeps there may be a password
                _logger.warning("the stored broker setting %s is left out: it does not change while brokers run", name)
                continue
            try:
                config = parse(TopicConfig, {names[name]: text}, config)
            except ConfigError as error:
                _logger.warning("the stored broker setting %s is left out: %s", name, error)
        return config

    @cached_property
    def in_force(self) -> BrokerConfig:
        """The broker's own settings, those that have changed since its start among them."""
        config = self.static
        for name, text in self._stored():
            if name in _OWN_DEFINITIONS:
                try:
                    config = parse(BrokerConfig, {name: text}, config)
                except ConfigError as error:
                    _logger.warning("the stored broker setting is left out: %s", error)
        return config

    def _stored(self) -> Iterable[tuple[str, str]]:
        """Every dynamic setting, those that count for more later."""
        return (*self.cluster.items(), *self.broker.items())

    def of_topic(self, name: str, own: Mapping[str, str]) -> list[Synonym]:
        """The values of a topic's setting, the one in force first; ``own`` are the topic's properties."""
        attribute, definition = definitions(TopicConfig)[name]
        found = _stored(definition, name, own, Source.TOPIC)
        return found + self._of_broker(
            definition.broker_synonym or name, definition, self.static.topic_defaults, attribute
        )

    def of_broker(self, name: str) -> list[Synonym]:
        """The values of a broker's setting, the one in force first; none of one that means nothing and is not set."""
        if name in LIVE:
            return self._dynamic(name, LIVE[name])
        if name in DYNAMIC_DEFINITIONS and name not in _OWN_DEFINITIONS:
            attribute, definition = definitions(TopicConfig)[topic_synonyms()[name]]
            return self._of_broker(name, definition, self.static.topic_defaults, attribute)
        attribute, definition = definitions(BrokerConfig)[name]
        return self._of_broker(name, definition, self.static, attribute)

    def _of_broker(self, name: str, definition: Definition, static: object, attribute: str) -> list[Synonym]:
        found = self._dynamic(name, definition) if name in DYNAMIC_DEFINITIONS else []
        given: Any = getattr(static, attribute)
        if given != definition.default:
            found.append(Synonym(name, definition.format(given), Source.STATIC))
        return [*found, Synonym(name, definition.format(definition.default), Source.DEFAULT)]

    def _dynamic(self, name: str, definition: Definition) -> list[Synonym]:
        of_broker = _stored(definition, name, self.broker, Source.BROKER)
        return of_broker + _stored(definition, name, self.cluster, Source.CLUSTER)


def _stored(definition: Definition, name: str, properties: Mapping[str, str], source: Source) -> list[Synonym]:
    if name not in properties:
        return []
    try:
        return [Synonym(name, definition.format(definition.parse(properties[name])), source)]
    except ConfigError:
        return []
