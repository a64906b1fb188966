"""``python -m benchmarks.growth``: what one partition more costs a controller and the brokers, in processor time.

All in one process, without network or ZooKeeper: what is timed is the work of building, encoding, decoding and
deciding, in microseconds of processor time for each partition of a cluster of that size, with three replicas each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from sparklog.broker.metadata_cache import MetadataCache, describe
from sparklog.controller import requests
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide
from sparklog.protocol.messages import LeaderAndIsrRequest, Message, MetadataResponse, UpdateMetadataRequest
from sparklog.protocol.slices import Steps, encoding
from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

SIZES = ((1_000, 3), (10_000, 3), (10_000, 30), (50_000, 30))
"""Partitions and brokers."""
PARTITIONS_A_TOPIC = 100
REPLICAS = 3
_LEADER_AND_ISR, _UPDATE_METADATA = 6, 8


def cluster_of(partitions: int, brokers: int) -> ControllerContext:
    """What a controller knows of a cluster in which all is well."""
    context = ControllerContext(1, 0)
    context.brokers = {id_: BrokerInfo(id_, Endpoint("broker.example.org", 9092), epoch=id_) for id_ in range(brokers)}
    for topic in range(partitions // PARTITIONS_A_TOPIC):
        name = f"topic-{topic}"
        assigned = {
            number: tuple((topic + number + each) % brokers for each in range(REPLICAS))
            for number in range(PARTITIONS_A_TOPIC)
        }
        context.assignments[name] = TopicAssignment(name, assigned, UUID(int=topic + 1))
        for number, replicas in assigned.items():
            context.states[TopicPartition(name, number)] = PartitionState(replicas[0], 0, replicas, 1, 0)
    return context


def _done(steps: Steps[Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def _spent(work: Callable[[], object], partitions: int) -> tuple[float, object]:
    """Microseconds of processor time a partition, and what came of it."""
    began = time.process_time()
    found = work()
    return (time.process_time() - began) / partitions * 1e6, found


def measure(partitions: int, brokers: int) -> Iterator[tuple[str, float]]:
    context = cluster_of(partitions, brokers)
    yield "a look at a cluster in which all is well", _spent(lambda: _done(decide(context)), partitions)[0]
    del context.brokers[0]
    hit = sum(0 in context.replicas(tp) for tp in context.states)
    spent, changed = _spent(lambda: _done(decide(context)), hit)
    assert isinstance(changed, dict)
    assert len(changed) == hit
    yield "deciding what becomes of those that a dead broker held, each", spent
    context.write(changed)
    mine = [tp for tp in changed if 1 in context.online(tp)]
    spent, message = _spent(
        lambda: _encoded(requests.leader_and_isr(context, 1, context.brokers[1], mine, full=False), _LEADER_AND_ISR),
        len(mine),
    )
    yield "LeaderAndIsr, built and encoded, each it names", spent
    assert isinstance(message, LeaderAndIsrRequest)
    spent, update = _spent(
        lambda: _encoded(requests.update_metadata(context, 1, 1, context.states, full=True), _UPDATE_METADATA),
        partitions,
    )
    yield "UpdateMetadata, built and encoded, each it names", spent
    assert isinstance(update, UpdateMetadataRequest)
    cache = MetadataCache()
    yield "UpdateMetadata, taken over by a broker", _spent(lambda: _take_over(cache, update), partitions)[0]
    spent, size = _spent(lambda: _metadata_bytes(cache), partitions)
    assert isinstance(size, int)
    yield "a whole Metadata answer, built and encoded once for all clients", spent
    yield "bytes of it", size / partitions


def _encoded(steps: Steps[Message], version: int) -> object:
    message: Message = _done(steps)
    _done(encoding(message, version))
    return message


def _take_over(cache: MetadataCache, update: UpdateMetadataRequest) -> None:
    topics = _done(describe(update.topic_states))
    assert isinstance(topics, list)
    cache.update(update, topics)


def _metadata_bytes(cache: MetadataCache) -> int:
    topic_type = MetadataResponse.MetadataResponseTopic
    topics = [
        topic_type(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=False,
            partitions=[
                topic_type.MetadataResponsePartition(
                    error_code=0,
                    partition_index=number,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=each.replicas,
                    isr_nodes=each.isr,
                    offline_replicas=each.offline,
                )
                for number, each in topic.partitions.items()
            ],
        )
        for topic in cache.topics()
    ]
    body = _done(encoding(MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=topics), 12))
    assert isinstance(body, bytes)
    return len(body)


def main() -> None:
    found = {(partitions, brokers): dict(measure(partitions, brokers)) for partitions, brokers in SIZES}
    names = list(next(iter(found.values())))
    lines = [
        "| us of processor time a partition | " + " | ".join(f"{p:,} on {b}" for p, b in found) + " |",
        "|---|" + "---:|" * len(found),
        *(f"| {name} | " + " | ".join(f"{each[name]:.1f}" for each in found.values()) + " |" for name in names),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
