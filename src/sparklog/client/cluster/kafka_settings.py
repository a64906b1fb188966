"""The settings of Kafka's own clients (``ProducerConfig.java``, ``ConsumerConfig.java``, ``AdminClientConfig.java``).

What is here and means nothing to a client of ours is somebody's working configuration; what is not here is misspelt, or
somebody else's.
"""

from __future__ import annotations

_NAMES = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms
    default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms security.protocol send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
    """.split()  # noqa: SIM905 (a list of this length is not read one a line)
)
_PREFIXES = ("default.list.", "metrics.context.")
_SECURITY = ("ssl.", "sasl.", "security.")


def is_kafkas(name: str) -> bool:
    """Whether a client of Kafka's knows the setting."""
    return name in _NAMES or name.startswith((*_PREFIXES, *_SECURITY))


def asks_for_security(name: str) -> bool:
    """Whether it has a meaning only to connections with TLS or SASL, or to how these are made."""
    return name.startswith(_SECURITY) and name not in _NAMES
