"""What clients hear while one broker after the other is stopped in order and started again.

Two producers write on at a steady pace: one with librdkafka's own settings beside acks=all, one that tries each record
once (``retries=0``). An error is a record that was reported as not delivered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Producer

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import ADMIN_TIMEOUT_S, FLUSH_TIMEOUT_S
from benchmarks.replication import Cluster
from sparklog.clock import Clock

_PACE_S = 0.005
_WAYS: dict[str, dict[str, Any]] = {"default retries": {}, "retries=0": {"retries": 0}}


class _Writer:
    """A producer, and what it was told of its records."""

    def __init__(self, cluster: Cluster, topic: str, settings: dict[str, Any], clock: Clock) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, **settings})
        self._producer.list_topics(topic, timeout=ADMIN_TIMEOUT_S)
        self._topic, self._clock = topic, clock
        self._sent = self._errors = 0
        self._longest_s = 0.0

    def write(self) -> None:
        began = self._clock.monotonic()
        self._producer.produce(self._topic, b"x" * 100, on_delivery=lambda error, _: self._told(error, began))
        self._sent += 1
        self._producer.poll(0)

    def _told(self, error: KafkaError | None, began: float) -> None:
        self._errors += error is not None
        self._longest_s = max(self._longest_s, self._clock.monotonic() - began)

    def end(self) -> Figures:
        if left := self._producer.flush(FLUSH_TIMEOUT_S):
            raise RuntimeError(f"nothing was said of {left} records within {FLUSH_TIMEOUT_S} s")
        return {"errors a 1,000 records": self._errors / self._sent * 1000, "longest s": self._longest_s}


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    topic = f"rolled-{number}"
    cluster.create(topic)
    writers = {name: _Writer(cluster, topic, settings, clock) for name, settings in _WAYS.items()}
    with _writing(list(writers.values())):
        for broker in list(cluster.brokers.values())[: effort.of(len(cluster.brokers))]:
            broker.stop()
            broker.start()
            cluster.wait_until_whole(topic)
    for name, writer in writers.items():
        yield f"rolling restart, {name}", writer.end()
    cluster.lead_again(topic)
    cluster.delete(topic)


@contextmanager
def _writing(writers: list[_Writer]) -> Iterator[None]:
    """They write from the entry to the exit, in a thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(_PACE_S):
            for writer in writers:
                writer.write()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
