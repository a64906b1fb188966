"""How long a record takes from a producer to a consumer: one is sent, and when it has been read the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.cli.perf.latencies import Latencies
from sparklog.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from sparklog.cli.perf.pace import Meter
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.producer.producer import Producer
    from sparklog.clock import Clock


class EndToEnd:
    """One run. The consumer stands at the ends of the topic's partitions, in which nobody else may write.

    It has a fetch at every broker at once, as any consumer has, so that no partition waits for another.
    """

    def __init__(self, producer: Producer, consumer: Consumer, clock: Clock, meter: Meter) -> None:
        self.latencies = Latencies()
        self.meter = meter
        self._producer = producer
        self._consumer = consumer
        self._clock = clock

    def run(self, topic: str, values: list[bytes], patience_s: float) -> None:
        """Raises SparklogError where a record is refused, or is not read within ``patience_s`` seconds."""
        for value in values:
            begun = self._clock.monotonic()
            self._producer.send(topic, value).result(patience_s)
            self._await_one(begun + patience_s)
            self.latencies.add((self._clock.monotonic() - begun) * 1000)
            self.meter.add(1, len(value))

    def _await_one(self, deadline: float) -> None:
        found = self._consumer.poll(max(deadline - self._clock.monotonic(), 0.0))
        if not found:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the record that was written cannot be read")
        if len(found) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "others write to this topic: give a topic that is for this alone")
