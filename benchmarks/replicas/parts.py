"""The parts in their order, and how they are run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import KafkaException

from benchmarks.broker import Results
from benchmarks.comparison import times_better
from benchmarks.loads.figures import Figures
from benchmarks.replicas import catching_up, disk, failing, latency, memory, rolling, survival, throughput
from benchmarks.replicas.bound import OutOfTime, bound
from benchmarks.replicas.effort import Effort
from benchmarks.replication import Cluster, clusters
from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError

Rows = list[dict[str, Any]]
Say = Callable[[str], None]

_WARM_UP_SHARE = 0.3
_FAILURES = (OutOfTime, RuntimeError, AssertionError, KafkaException, SparklogError, OSError)
_MANY = 1000
_BOUND_S_A_THOUSAND = 150.0
"""For each thousand partitions more than that whose leaders are to die."""


@dataclass(frozen=True)
class Part:
    """``measure(cluster, round, effort, clock)`` yields the figures of one side in one round.

    ``bound_s`` is for all rounds on both sides. A round 0 of some parts warms up and is thrown away. ``on_disks``: each
    broker has a disk of its own, if that can be.
    """

    name: str
    measure: Callable[[Cluster, int, Effort, Clock], Iterator[tuple[str, Figures]]]
    bound_s: float
    rounds: int
    warms_up: bool = False
    on_disks: bool = False


PARTS = (
    Part("memory", memory.measure, 60, 1),
    Part("throughput", throughput.measure, 200, 3, warms_up=True),
    Part("latency", latency.measure, 100, 3, warms_up=True),
    Part("catching-up", catching_up.measure, 160, 3),
    Part("rolling", rolling.measure, 160, 3),
    Part("failing", failing.measure, 450, 3),
    Part("survival", survival.measure, 280, 1, on_disks=True),
)
"""Loads come before deaths: a JVM that has just been started is slow. All bounds together are 24 minutes."""


NAMES = tuple(part.name for part in PARTS)


def run(names: Iterable[str], effort: Effort, before: Rows, say: Say, keep: Callable[[Rows], None]) -> Rows:
    """The rows ``before``, those of the parts ``names`` replaced; kept whenever a part has ended.

    A row a figure: (part, measurement, figure, sparklog, kafka, ratio, ratios); and one a part: (part, date, seconds,
    rounds, of, failure), the last empty if nothing failed.
    """
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    clock, rows = SystemClock(), {part.name: [row for row in before if row["part"] == part.name] for part in PARTS}
    asked = [part for part in PARTS if part.name in set(names)]
    for on_disks, parts in groupby(asked, key=lambda part: part.on_disks):
        with _running(on_disks) as (both, lacking):
            for part in parts:
                rows[part.name] = _Run(part, effort, both, clock, say).rows(lacking)
                keep([row for each in rows.values() for row in each])
    return [row for each in rows.values() for row in each]


@contextmanager
def _running(on_disks: bool) -> Iterator[tuple[list[Cluster], str]]:
    """Both clusters; and what could not be had for them."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="sparklog-bench-")))
        lacking = stack.enter_context(disk.disks(survival.places(directory))) if on_disks else ""
        yield stack.enter_context(clusters(directory)), f"no power was cut: {lacking}" if lacking else ""


class _Run:
    """One part, on both clusters."""

    def __init__(self, part: Part, effort: Effort, both: list[Cluster], clock: Clock, say: Say) -> None:
        self._part, self._effort, self._both, self._clock = part, effort, both, clock
        self._rounds = min(part.rounds, effort.rounds)
        self._say = say
        self._results = Results()
        self._figures = dict[str, tuple[str, ...]]()
        self._done = 0
        self._measured = both[0]

    def rows(self, lacking: str) -> Rows:
        part, began = self._part, self._clock.monotonic()
        seconds = part.bound_s + _BOUND_S_A_THOUSAND * max(0, sum(self._effort.failing) / _MANY - 1.1)
        failure = lacking
        try:
            with bound(seconds):
                for number in range(0 if part.warms_up else 1, self._rounds + 1):
                    self._round(number)
        except _FAILURES as error:
            self._say(traceback.format_exc())
            failure = str(error).partition("\n")[0] or type(error).__name__
            self._restore()
        ended = {
            "part": part.name,
            "date": datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "seconds": self._clock.monotonic() - began,
            "rounds": self._done,
            "of": self._rounds,
            "failure": failure,
        }
        told = f"replication: {part.name}: {self._done} of {self._rounds} rounds in {ended['seconds']:.0f} s"
        self._say(f"{told}; {failure}" if failure else told)
        return [*self._compared(), ended]

    def _round(self, number: int) -> None:
        effort = self._effort
        if not number:
            effort = Effort(effort.share * _WARM_UP_SHARE, effort.rounds, effort.failing)
        for cluster in self._both if number % 2 else self._both[::-1]:
            self._measured = cluster
            for name, found in self._part.measure(cluster, number, effort, self._clock):
                if number:
                    self._figures[name] = tuple(found)
                    self._results.add(name, cluster.name, found)
                    self._tell(number, name, cluster, found)
        self._done = number

    def _tell(self, number: int, name: str, cluster: Cluster, found: Figures) -> None:
        """A line a figure: the first side's by itself, the second's beside it."""
        for figure, value in found.items():
            told = f"replication: {self._part.name}, round {number} of {self._rounds}: {name}: {figure}: "
            pairs = self._results.pairs(name, figure)
            if len(pairs) == len(self._results.samples[name, cluster.name, figure]):
                ours, theirs = pairs[-1]
                told += f"sparklog {ours:.2f}, kafka {theirs:.2f}, ratio {times_better(figure, ours, theirs):.2f}"
            else:
                told += f"{cluster.name} {value:.2f}"
            self._say(told)

    def _compared(self) -> Rows:
        """Without what one side alone has been measured in."""
        return [
            {"part": self._part.name, **self._results.row(name, figure)}
            for name, figures in self._figures.items()
            for figure in figures
            if self._results.pairs(name, figure)
        ]

    def _restore(self) -> None:
        """The cluster that was measured last is as before: whatever was stopped, or was about to stop, runs."""
        for broker in self._measured.brokers.values():
            broker.stop()
            broker.start()
        self._measured.wait_until_all_serve()
