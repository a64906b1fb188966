"""One broker of ours beside one of Apache Kafka 3.9.1: the same load on each in turn, in one run, on one disk.

A round runs every measurement on both, first on one and then on the other (who is first alternates); the first round
warms up and is thrown away. ``ratio`` is the median over the rounds of how many times better sparklog was, so the
machine's slow drifts cancel. Only one load runs at a time; both brokers stay up all the while.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import limits, machine
from benchmarks.comparison import times_better
from benchmarks.loads.figures import Figures
from benchmarks.peers import Peer, both_brokers
from sparklog.clock import Clock, SystemClock

ROUNDS = 5
WARM_UP_SHARE = 0.5
"""Of each load, in the round that is thrown away."""
QUIET_WAIT_S = 2
LOAD_TIMEOUT_S = 300
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Measurement:
    """One load, and the figures of it that are reported. ``reads`` names an earlier one whose topic it reads.

    ``protocol`` is that of the listener that it goes to.
    """

    name: str
    load: str
    figures: tuple[str, ...]
    arguments: dict[str, Any]
    reads: str = ""
    partitions: int = 1
    protocol: str = "PLAINTEXT"


def _librdkafka(size: int, records: int) -> list[Measurement]:
    kind = f"librdkafka, {_bytes(size)}"
    rates = ("MB/s", "records/s") if size >= 1000 else ("records/s",)
    written = f"{kind}: produce, acks=all"
    common = {"size": size, "records": records}
    return [
        Measurement(f"{kind}: produce, acks=1", "produce", rates, {**common, "acks": "1"}),
        Measurement(written, "produce", rates, {**common, "acks": "all"}),
        Measurement(f"{kind}: consume", "consume", rates, common, reads=written),
    ]


def _raw(size: int, batch_bytes: int, requests: int, acks: tuple[int, ...]) -> list[Measurement]:
    kind = f"raw requests, {_bytes(size)} records in {_bytes(batch_bytes)} batches"
    common = {"size": size, "batch_bytes": batch_bytes, "requests": requests}
    figures = ("MB/s",) if batch_bytes >= _MEGABYTE else ("requests/s", "MB/s")
    names = {each: f"{kind}: produce, acks={'all' if each < 0 else each}" for each in acks}
    produced = [Measurement(names[each], "raw_produce", figures, {**common, "acks": each}) for each in acks]
    return [*produced, Measurement(f"{kind}: fetch", "raw_fetch", figures, common, reads=names[acks[-1]])]


def _bytes(size: int) -> str:
    return f"{size // _MEGABYTE} MB" if size >= _MEGABYTE else f"{size // 1000} KB" if size >= 1000 else f"{size} B"


_TAILS = ("p50 ms", "p99 ms")
MEASUREMENTS = [
    *_librdkafka(1000, 200_000),
    *_librdkafka(100, 600_000),
    *_raw(1000, _MEGABYTE, 500, (1, -1)),
    *_raw(100, _MEGABYTE, 400, (1,)),
    *_raw(1000, 16_000, 10_000, (1,)),
    Measurement(
        "librdkafka, 100 B: one record a request, acks=1",
        "produce",
        ("records/s",),
        {"size": 100, "acks": "1", "records": 20_000, "one_by_one": True},
    ),
    Measurement(
        "librdkafka, 100 B: round trip, acks=all", "round_trip", _TAILS, {"size": 100, "acks": "all", "requests": 2000}
    ),
    Measurement("librdkafka, 100 B: producer to consumer", "end_to_end", _TAILS, {"size": 100, "requests": 2000}),
    Measurement(
        "raw requests, 100 B: round trip, acks=1", "raw_round_trip", _TAILS, {"size": 100, "acks": 1, "requests": 3000}
    ),
]


@dataclass
class Results:
    """What every round gave, by measurement, peer and figure."""

    samples: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def add(self, measurement: str, peer: str, figures: Figures) -> None:
        for figure, value in figures.items():
            self.samples.setdefault((measurement, peer, figure), []).append(value)

    def pairs(self, measurement: str, figure: str) -> list[tuple[float, float]]:
        """Ours and Kafka's, of the rounds that both have."""
        ours, theirs = (self.samples.get((measurement, peer, figure), []) for peer in ("sparklog", "kafka"))
        return list(zip(ours, theirs, strict=False))

    def row(self, measurement: str, figure: str) -> dict[str, Any]:
        pairs = self.pairs(measurement, figure)
        ours, theirs = zip(*pairs, strict=True)
        ratios = [times_better(figure, *each) for each in pairs]
        return {
            "measurement": measurement,
            "figure": figure,
            "sparklog": statistics.median(ours),
            "kafka": statistics.median(theirs),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }


def run(rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """A row a figure: (measurement, figure, sparklog, kafka, ratio, ratios), then memory, then the machine's limits."""
    rows = compare(MEASUREMENTS, rounds, lambda text: say(f"broker: {text}"))
    say("broker: what the machine can do")
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch:
        directory = Path(scratch)
        for name, rate in (("receive", limits.receive_rate(directory)), ("send", limits.send_rate(directory))):
            rows.append({"measurement": f"limit of one thread: {name}", "figure": "MB/s", "limit": rate})
    return rows


def compare(measurements: list[Measurement], rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Both brokers from their start to their stop under these loads: a row a figure, then memory."""
    clock = SystemClock()
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch:
        directory = Path(scratch)
        with both_brokers(directory) as peers:
            results = Results()
            for number in range(rounds + 1):
                say(f"round {number} of {rounds}" if number else "warming up")
                one_round = Round(directory, number, clock, 1.0 if number else WARM_UP_SHARE, measurements)
                one_round.run(peers if number % 2 else peers[::-1], results if number else Results())
            for peer in peers:
                results.add("memory after the load", peer.name, {"MB": machine.resident_bytes(peer.pid) / 1e6})
    rows = [results.row(each.name, figure) for each in measurements for figure in (*each.figures, "broker CPU us")]
    rows.append(results.row("memory after the load", "MB"))
    return rows


@dataclass(frozen=True)
class Round:
    """Every measurement once on each peer, with ``share`` of its load, in topics of its own."""

    directory: Path
    number: int
    clock: Clock
    share: float
    measurements: list[Measurement]

    def run(self, peers: Sequence[Peer], results: Results) -> None:
        topics: dict[tuple[str, str], str] = {}
        for position, measurement in enumerate(self.measurements):
            for peer in peers:
                topic = topics.get((peer.name, measurement.reads), f"r{self.number}-m{position}")
                if not measurement.reads:
                    peer.create_topic(topic, measurement.partitions)
                    topics[peer.name, measurement.name] = topic
                results.add(measurement.name, peer.name, self._measure(measurement, peer, topic))
        for peer in peers:
            peer.delete_topics([topic for (name, _), topic in topics.items() if name == peer.name])

    def _measure(self, measurement: Measurement, peer: Peer, topic: str) -> Figures:
        """Run one load; its figures, and the broker's CPU time in microseconds for each of what it counts."""
        settle(self.directory, self.clock)
        arguments = dict(measurement.arguments)
        counted = next(name for name in _COUNTED if name in arguments)
        amount = arguments[counted] = int(arguments[counted] * self.share)
        before = machine.cpu_seconds(peer.pid)
        figures = run_load(measurement.load, {"bootstrap": peer.end(measurement.protocol), "topic": topic, **arguments})
        return figures | {"broker CPU us": (machine.cpu_seconds(peer.pid) - before) / amount * 1e6}


def settle(directory: Path, clock: Clock) -> None:
    """Nothing of the loads before is left to be written while the next one runs, and the machine is quiet."""
    for folder, _, names in os.walk(directory):
        for name in names:
            # Topics of the round before may still be being deleted.
            with suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
    machine.await_quiet(clock, QUIET_WAIT_S)


_COUNTED = ("requests", "records", "transactions", "members")


def run_load(load: str, arguments: dict[str, Any]) -> Figures:
    """The figures of one load, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loads", load, json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load {load} {arguments} failed:\n{done.stderr}")
    figures: Figures = json.loads(done.stdout)
    return figures
