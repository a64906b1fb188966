"""Which brokers partitions are to be moved to: plans, as Kafka's tools write them, and as they are made here. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from sparklog.cluster.info import ClusterInfo, PartitionInfo
from sparklog.errors import ConfigError
from sparklog.structs import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The replicas that each partition is to have, the preferred leader first."""

T = TypeVar("T")
_FORM = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
_KINDS: dict[type, str] = {list: "a list", str: "a text", int: "a whole number"}


def parse_plan(text: str) -> Plan:
    """What ``kafka-reassign-partitions.sh --execute`` reads. Raises ConfigError."""
    if not text.strip():
        raise _no_plan("there is nothing in it")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _no_plan(f"it is not JSON from line {error.lineno}, column {error.colno} on") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise _no_plan("it is not JSON that can be read") from error
    plan: Plan = {}
    for each in _entry(document, "partitions", list):
        tp = TopicPartition(_entry(each, "topic", str), _entry(each, "partition", int))
        replicas = tuple(_entry(each, "replicas", list))
        if tp in plan:
            raise ConfigError(f"the plan names {tp} twice")
        if not replicas or len(set(map(repr, replicas))) < len(replicas):
            raise ConfigError(f"the plan gives {tp} the replicas {list(replicas)}: name one or more, each once")
        if strange := [broker for broker in replicas if type(broker) is not int]:
            raise _no_plan(f"it gives {tp} the replica {strange[0]!r}, which is not the number of a broker")
        plan[tp] = replicas
    return plan


def _entry(holder: object, name: str, kind: type[T]) -> T:
    """What an object of JSON has by this name. Raises ConfigError where that is no such thing."""
    if not isinstance(holder, dict):
        raise _no_plan(f"{str(holder)[:40]!r} stands where an object with {name!r} should")
    if name not in holder:
        raise ConfigError(f"the plan lacks {name!r}; one looks like {_FORM}")
    found = holder[name]
    if type(found) is not kind:
        raise _no_plan(f"its {name!r} is {repr(found)[:40]}, and not {_KINDS[kind]}")
    return found


def _no_plan(why: str) -> ConfigError:
    return ConfigError(f"not a plan: {why}; one looks like {_FORM}")


def format_plan(plan: Mapping[TopicPartition, Iterable[int]]) -> str:
    """For ``parse_plan``, and for Kafka's tool."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def present(info: ClusterInfo) -> Plan:
    """Where all partitions are."""
    return {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in info.topics.values()
        for each in topic.partitions
    }


def drained(info: ClusterInfo, broker: int) -> Plan:
    """Each replica of the broker goes to the live one that has the least, in a rack without another if there is one.

    Raises ConfigError where no broker is left to take a replica, and for one that neither lives nor has a replica.
    """
    load = Counter[int](dict.fromkeys(info.brokers, 0))
    load.update(replica for replicas in present(info).values() for replica in replicas)
    if broker not in load:
        raise ConfigError(f"there is no broker {broker}, only {', '.join(map(str, sorted(load)))}")
    plan: Plan = {}
    for topic in sorted(info.topics):
        for each in info.topics[topic].partitions:
            if broker in each.replicas:
                tp = TopicPartition(topic, each.partition)
                successor = _successor(info, tp, each, broker, load)
                load[successor] += 1
                plan[tp] = tuple(successor if replica == broker else replica for replica in each.replicas)
    return plan


def _successor(info: ClusterInfo, tp: TopicPartition, each: PartitionInfo, broker: int, load: Mapping[int, int]) -> int:
    candidates = [other for other in info.brokers if other not in each.replicas]
    if not candidates:
        text = f"{tp} has a replica on every live broker: start another, or give it fewer replicas first"
        raise ConfigError(text)
    taken = {info.racks.get(other) for other in info.brokers if other in each.replicas and other != broker}
    return min(candidates, key=lambda other: (info.racks.get(other, "") in taken, load[other], other))


def changed(info: ClusterInfo, plan: Plan) -> Plan:
    """What of the plan is not so yet. Raises ConfigError for a partition or a broker that is not there."""
    there = present(info)
    for tp, replicas in plan.items():
        if tp not in there:
            raise ConfigError(f"there is no partition {tp}")
        if unknown := set(replicas) - info.brokers.keys() - set(there[tp]):
            raise ConfigError(f"brokers {sorted(unknown)}, for {tp}, do not live; {sorted(info.brokers)} do")
    return {tp: replicas for tp, replicas in plan.items() if there[tp] != replicas}


def sources(info: ClusterInfo, plan: Plan) -> dict[TopicPartition, set[int]]:
    """The brokers that may be copied from."""
    there = present(info)
    return {tp: set(there[tp]) for tp in plan}


def newcomers(info: ClusterInfo, plan: Plan) -> dict[TopicPartition, set[int]]:
    """The brokers that are to copy."""
    there = present(info)
    return {tp: set(replicas) - set(there[tp]) for tp, replicas in plan.items()}


def throttled(replicas: Mapping[TopicPartition, Collection[int]]) -> dict[str, str]:
    """By topic what ``leader.replication.throttled.replicas``, or ``follower...``, is to be for these replicas."""
    by_topic: dict[str, list[str]] = {}
    for tp, brokers in sorted(replicas.items()):
        by_topic.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in sorted(brokers))
    return {topic: ",".join(entries) for topic, entries in by_topic.items() if entries}
