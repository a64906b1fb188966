"""Writes random records as fast as may be, and says how long the brokers took to acknowledge them.

The latency of a record is the time from when its batch was handed to the producer until all of the batch was
acknowledged; with ``acks=0`` until it was sent.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.perf.latencies import Latencies
from sparklog.cli.perf.pace import Meter, Pace

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.client.producer.delivery import BatchFuture
    from sparklog.client.producer.producer import Producer
    from sparklog.clock import Clock

_ROUND_BYTES = 1 << 20
"""Bytes of records that are handed over at once, where there is no limit to their rate."""
_ROUNDS_A_SECOND = 50
"""How evenly records come where there is one."""
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Workload(NamedTuple):
    """``size``: bytes of a value; ``per_second``: records, None for no limit."""

    topic: str
    records: int
    size: int
    per_second: float | None


def random_values(count: int, size: int, seed: int = 0) -> pa.Array:
    """``count`` values of ``size`` random letters each, as Kafka's tool makes them: they compress to about 60 %."""
    import numpy as np
    import pyarrow as pa

    letters = np.frombuffer(_ALPHABET, np.uint8)
    data = np.random.default_rng(seed).choice(letters, count * size)
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


class Producing:
    """One run. ``meter`` has what was sent, ``latencies`` what was acknowledged."""

    def __init__(self, producer: Producer, workload: Workload, clock: Clock, meter: Meter) -> None:
        self.meter = meter
        self.latencies = Latencies()
        self._producer = producer
        self._workload = workload
        self._clock = clock
        self._settled: SimpleQueue[tuple[float, BatchFuture]] = SimpleQueue()

    def run(self) -> None:
        """Send all, and wait for the answers. Raises SparklogError for the first batch that will not be written."""
        pace = Pace(self._clock, self._workload.per_second)
        size = self._round_size()
        values = random_values(min(size, self._workload.records), self._workload.size)
        sent = 0
        while sent < self._workload.records:
            pace.wait(sent)
            part = values[: self._workload.records - sent]
            self._send(part)
            sent += len(part)
        while self.latencies.records < sent:
            self._count(*self._settled.get())

    def _round_size(self) -> int:
        """Records that are handed over at once."""
        most = max(_ROUND_BYTES // max(self._workload.size, 1), 1)
        limit = self._workload.per_second
        return most if limit is None else max(min(most, int(limit / _ROUNDS_A_SECOND)), 1)

    def _send(self, values: pa.Array) -> None:
        import pyarrow as pa

        begun = self._clock.monotonic()
        futures = self._producer.send_arrow(self._workload.topic, pa.record_batch({"value": values}))
        for future in futures:
            future.add_done_callback(lambda done: self._settled.put((self._clock.monotonic() - begun, done)))
        self.meter.add(len(values), len(values) * self._workload.size)
        with suppress(Empty):
            while True:
                self._count(*self._settled.get_nowait())

    def _count(self, seconds: float, future: BatchFuture) -> None:
        self.latencies.add(seconds * 1000, future.result().records)
