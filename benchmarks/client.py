"""Our Python client beside confluent-kafka and kafka-python: the same records to and from one sparklog broker.

A round runs every way once, each in a process and to a topic of its own; who is first alternates. The first round warms
up and is thrown away. ``ratio`` is the median over the rounds of how many times better sparklog's client was than the
other one in the same round. All have the settings that ours has by itself: acks=all, idempotence, batches of 128 KiB
that linger for 5 ms, fetches of 4 MiB, 500 records a poll. A rate does not depend on how many records it is of, so the
slower ways are given fewer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker import run_load, settle
from benchmarks.peers import Peer, our_broker
from sparklog.clock import SystemClock

ROUNDS = 5
WARM_UP_SHARE = 0.2
KEYED_PARTITIONS = 4
CONFLUENT, KAFKA_PYTHON = "confluent-kafka", "kafka-python"


@dataclass(frozen=True)
class Way:
    """One client's way of doing something: a load. ``share`` is how much of the contest's amount it is given."""

    name: str
    load: str
    share: float = 1.0


@dataclass(frozen=True)
class Contest:
    """Ways that do the same: each of ``ours`` is compared with each of ``theirs``.

    ``amount`` is so many ``counted`` (records or requests). One that ``reads`` does so from a topic that is there.
    """

    kind: str
    ours: tuple[Way, ...]
    theirs: tuple[Way, ...]
    size: int
    amount: int
    figures: tuple[str, ...] = ("records/s",)
    counted: str = "records"
    reads: bool = False
    partitions: int = 1

    def measurement(self, way: Way) -> str:
        return f"{way.name}, {self.kind}"


def _contests(kind: str, size: int, written: int, read: int) -> list[Contest]:
    senders = (Way(CONFLUENT, "confluent_send"), Way(KAFKA_PYTHON, "kafka_python_send", 0.2))
    send = Way("Producer.send", "sparklog_send")
    send_async = Way("AsyncProducer.send", "sparklog_send_async")
    send_arrow = Way("Producer.send_arrow", "sparklog_send_arrow", 4.0)
    polls = (Way(CONFLUENT, "confluent_consume"), Way(KAFKA_PYTHON, "kafka_python_poll", 0.2))
    iterations = (Way(CONFLUENT, "confluent_poll", 0.5), Way(KAFKA_PYTHON, "kafka_python_iterate", 0.2))
    poll, poll_arrow = Way("Consumer.poll", "sparklog_poll"), Way("Consumer.poll_arrow", "sparklog_poll_arrow")
    iterate = Way("iteration", "sparklog_iterate", 0.5)
    return [
        Contest(kind, (send, send_async, send_arrow), senders, size, written),
        Contest(f"{kind}, keyed", (send, send_arrow), senders, size, written, partitions=KEYED_PARTITIONS),
        Contest(kind, (poll, poll_arrow), polls, size, read, reads=True),
        Contest(kind, (iterate,), iterations, size, read, reads=True),
    ]


_ROUND_TRIPS = Contest(
    "100 B: round trip",
    (Way("Producer.send", "sparklog_round_trip"), Way("AsyncProducer.send", "sparklog_round_trip_async")),
    (Way(CONFLUENT, "confluent_round_trip"), Way(KAFKA_PYTHON, "kafka_python_round_trip")),
    100,
    2000,
    ("p50 ms", "p99 ms"),
    "requests",
)
CONTESTS = [*_contests("100 B", 100, 300_000, 1_000_000), *_contests("1 KB", 1000, 100_000, 200_000), _ROUND_TRIPS]


@dataclass
class Samples:
    """What every round gave, by contest, load and figure."""

    values: dict[tuple[int, str, str], list[float]] = field(default_factory=dict)

    def row(self, number: int, contest: Contest, way: Way, peer: Way, figure: str) -> dict[str, Any]:
        ours, theirs = (self.values[number, each.load, figure] for each in (way, peer))
        more_is_better = figure.endswith("/s")
        ratios = [a / b if more_is_better else b / a for a, b in zip(ours, theirs, strict=True)]
        return {
            "measurement": contest.measurement(way),
            "figure": figure,
            "peer": peer.name,
            "sparklog": statistics.median(ours),
            "other": statistics.median(theirs),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }


def run(
    rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None, contests: list[Contest] = CONTESTS
) -> list[dict[str, Any]]:
    """A row a figure and peer: (measurement, figure, peer, sparklog, other, ratio, ratios)."""
    samples = Samples()
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch:
        directory = Path(scratch)
        with our_broker(directory) as broker:
            _write_what_is_read(broker, contests)
            for number in range(rounds + 1):
                say(f"client: round {number} of {rounds}" if number else "client: warming up")
                _Round(directory, broker, number, contests).run(samples if number else Samples())
    return [
        samples.row(number, contest, way, peer, figure)
        for number, contest in enumerate(contests)
        for way in contest.ours
        for figure in contest.figures
        for peer in contest.theirs
    ]


def _read_topic(size: int) -> str:
    return f"read-{size}"


def _write_what_is_read(broker: Peer, contests: list[Contest]) -> None:
    for size, records in {contest.size: contest.amount for contest in contests if contest.reads}.items():
        broker.create_topic(_read_topic(size))
        arguments = {"size": size, "records": records, "acks": "all"}
        run_load("produce", {"bootstrap": broker.bootstrap, "topic": _read_topic(size), **arguments})


@dataclass(frozen=True)
class _Round:
    """Every way of every contest once."""

    directory: Path
    broker: Peer
    number: int
    contests: list[Contest]

    def run(self, samples: Samples) -> None:
        for number, contest in enumerate(self.contests):
            ways = (*contest.ours, *contest.theirs)
            for way in ways if self.number % 2 else ways[::-1]:
                for figure, value in self._measure(f"r{self.number}-c{number}", contest, way).items():
                    samples.values.setdefault((number, way.load, figure), []).append(value)

    def _measure(self, prefix: str, contest: Contest, way: Way) -> dict[str, float]:
        amount = int(contest.amount * way.share * (1.0 if self.number else WARM_UP_SHARE))
        arguments = {"bootstrap": self.broker.bootstrap, "size": contest.size, contest.counted: amount}
        if contest.reads:
            settle(self.directory, SystemClock())
            return run_load(way.load, {**arguments, "topic": _read_topic(contest.size)})
        topic = f"{prefix}-{way.load}"
        self.broker.create_topic(topic, contest.partitions)
        if contest.partitions > 1:
            arguments["partitions"] = contest.partitions
        settle(self.directory, SystemClock())
        figures = run_load(way.load, {**arguments, "topic": topic})
        self.broker.delete_topics([topic])
        return figures
