"""The JMX exporter's example for Kafka, ``kafka-2_0_0.yml``: which series a number of a bean becomes.

The exporter writes a number as ``DOMAIN<KEY=VALUE, ...><>ATTRIBUTE``, with the properties in the order of the bean's
name. The first rule whose pattern is found in that names the series; what none finds is not told. Names are in small
letters, and what a name may not have becomes an underscore, of which none follows another.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BEAN = r"kafka.(\w+)<type=(.+), name=(.+)"
_SERVER = "kafka.server<type=(.+)"


class Rule(NamedTuple):
    """``name`` and the values of ``labels`` refer to the groups of ``pattern``, as do their names."""

    pattern: str
    name: str
    labels: Mapping[str, str]


def series_of(bean: str, attribute: str) -> tuple[str, dict[str, str]] | None:
    """Name and labels of the series of one number of ``DOMAIN:KEY=VALUE,...``, if a rule finds it."""
    domain, _, properties = bean.partition(":")
    line = f"{domain}<{properties.replace(',', ', ')}><>{attribute}"
    for rule in _RULES:
        if found := re.search(rule.pattern, line):
            name = re.sub("_+", "_", re.sub(r"[^\w:]", "_", found.expand(rule.name).lower()))
            return name, {found.expand(label): found.expand(value) for label, value in rule.labels.items()}
    return None


def _with_pairs(pattern: str, ending: str, name: str, *more: int) -> Iterator[Rule]:
    """The rule for two, one and no properties beyond the bean's name; ``more`` are those numbers, if others."""
    for pairs in more or (2, 1, 0):
        labels = {rf"\{group}": rf"\{group + 1}" for group in range(4, 4 + 2 * pairs, 2)}
        yield Rule(pattern + ", (.+)=(.+)" * pairs + ending, name, labels)


def _quantiles(pairs: int) -> Iterator[Rule]:
    (rule,) = _with_pairs(_BEAN, r"><>(\d+)thPercentile", r"kafka_\1_\2_\3", pairs)
    yield rule._replace(labels={**rule.labels, "quantile": rf"0.\{4 + 2 * pairs}"})


def _rules() -> Iterator[Rule]:
    """In the order of the file."""
    of_partition = r", name=(.+), clientId=(.+), topic=(.+), partition=(.*)><>Value"
    labels = {"clientId": r"\3", "topic": r"\4", "partition": r"\5"}
    yield Rule(_SERVER + of_partition, r"kafka_server_\1_\2", labels)
    of_peer = r", name=(.+), clientId=(.+), brokerHost=(.+), brokerPort=(.+)><>Value"
    yield Rule(_SERVER + of_peer, r"kafka_server_\1_\2", {"clientId": r"\3", "broker": r"\4:\5"})
    yield Rule(r"kafka.coordinator.(\w+)<type=(.+), name=(.+)><>Value", r"kafka_coordinator_\1_\2_\3", {})
    yield from _with_pairs(_BEAN + r"PerSec\w*", "><>Count", r"kafka_\1_\2_\3_total")
    quota = {"resource": r"\1", "user": r"\2", "clientId": r"\3"}
    yield Rule(_SERVER + ", user=(.+), client-id=(.+)><>([a-z-]+)", r"kafka_server_quota_\4", quota)
    for key, label in (("client-id", "clientId"), ("user", "user")):
        yield Rule(f"{_SERVER}, {key}=(.+)><>([a-z-]+)", r"kafka_server_quota_\3", {"resource": r"\1", label: r"\2"})
    yield from _with_pairs(_BEAN, "><>Value", r"kafka_\1_\2_\3")
    for pairs in (2, 1, 0):
        yield from _with_pairs(_BEAN, "><>Count", r"kafka_\1_\2_\3_count", pairs)
        yield from _quantiles(pairs)
    yield from _with_pairs(_BEAN + r"Percent\w*", "><>MeanRate", r"kafka_\1_\2_\3_percent", 0)
    yield from _with_pairs(_BEAN + r"Percent\w*", "><>Value", r"kafka_\1_\2_\3_percent", 0, 1)


_RULES = tuple(_rules())
