"""Many clients at once, latency at a fixed rate, groups and transactions: sparklog beside Kafka, as in ``broker``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.broker import Measurement, compare

ROUNDS = 5
PRODUCERS = 8
_RATE = 20_000_000


def _eight(kind: str, size: int, records: int) -> list[Measurement]:
    figures = ("MB/s",) if size >= 1000 else ("records/s",)
    common = {"size": size, "records": records, "producers": PRODUCERS}

    def produced(acks: str) -> Measurement:
        name = f"eight producers, {kind}: produce, acks={acks}"
        return Measurement(name, "produce_together", figures, {**common, "acks": acks}, partitions=PRODUCERS)

    written = produced("all")
    consumed = Measurement(f"eight consumers, {kind}", "consume_together", figures, common, reads=written.name)
    return [produced("1"), written, consumed]


def _paced(acks: str) -> Measurement:
    load = {"size": 1000, "acks": acks, "rate": _RATE // 1000, "records": 100_000}
    return Measurement(f"at 20 MB/s, 1 KB, acks={acks}", "paced", ("p50 ms", "p99 ms", "p99.9 ms"), load)


MEASUREMENTS = [
    *_eight("1 KB", 1000, 200_000),
    *_eight("100 B", 100, 800_000),
    Measurement(
        "eight producers, 100 B: one record a request, acks=1",
        "produce_together",
        ("records/s",),
        {"size": 100, "acks": "1", "records": 40_000, "producers": PRODUCERS, "one_by_one": True},
        partitions=PRODUCERS,
    ),
    _paced("all"),
    Measurement("a group of 100 members", "rebalance", ("join s", "leave s"), {"members": 100}),
    Measurement("transactions, one producer", "commit", ("commits/s",), {"transactions": 400, "producers": 1}),
    Measurement("transactions, eight producers", "commit", ("commits/s",), {"transactions": 1600, "producers": 8}),
]


def run(rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """A row a figure, as in ``benchmarks.broker``, then memory."""
    return compare(MEASUREMENTS, rounds, lambda text: say(f"delivery: {text}"))
