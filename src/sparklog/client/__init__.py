"""What talks to brokers, ours or Kafka's.

``Producer``, ``Consumer``, ``Admin``, and the same with ``Async`` before the name, are for programs; they are imported
when they are first named, so that a program that needs a part of this package pays only for that. Beneath them,
blocking and in whole batches: ``batch_producer``, ``batch_consumer``, ``fetcher``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin as Admin
    from sparklog.client.admin.admin import AsyncAdmin as AsyncAdmin
    from sparklog.client.admin.topics import NewTopic as NewTopic
    from sparklog.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from sparklog.client.consumer.consumer import Consumer as Consumer
    from sparklog.client.consumer.group.committed import OffsetAndMetadata as OffsetAndMetadata
    from sparklog.client.producer.async_producer import AsyncProducer as AsyncProducer
    from sparklog.client.producer.producer import Producer as Producer
    from sparklog.structs import TopicPartition as TopicPartition

_HOMES = {
    "Admin": "sparklog.client.admin.admin",
    "AsyncAdmin": "sparklog.client.admin.admin",
    "AsyncProducer": "sparklog.client.producer.async_producer",
    "AsyncConsumer": "sparklog.client.consumer.async_consumer",
    "Consumer": "sparklog.client.consumer.consumer",
    "NewTopic": "sparklog.client.admin.topics",
    "OffsetAndMetadata": "sparklog.client.consumer.group.committed",
    "Producer": "sparklog.client.producer.producer",
    "TopicPartition": "sparklog.structs",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "TopicPartition",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
