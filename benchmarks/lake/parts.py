"""The parts in their order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.lake import freshness, offloading
from benchmarks.peers import both_brokers
from benchmarks.spark import spark_session
from benchmarks.spark_cases import Stage
from sparklog.clock import SystemClock

Rows = list[dict[str, Any]]
Part = Callable[[Stage, float, int], Iterator[Comparison]]


def _offloading(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    for topic in offloading.topics(share):
        for bootstrap in stage.bootstraps.values():
            topic.fill(bootstrap, stage.clock)
        yield from offloading.compare(stage, topic, rounds)


def _freshness(stage: Stage, share: float, _: int) -> Iterator[Comparison]:
    yield from freshness.measure(stage, share)


PARTS: dict[str, Part] = {"offload": _offloading, "freshness": _freshness}
NAMES = tuple(PARTS)


def run(
    names: Iterable[str],
    share: float,
    rounds: int,
    before: Rows,
    say: Callable[[str], None],
    keep: Callable[[Rows], None],
) -> Rows:
    """The rows ``before``, those of the parts ``names`` replaced; kept whenever a part has ended.

    A row a figure, see ``Comparison.row``, with the name of its part.
    """
    if unknown := set(names) - set(PARTS):
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    rows = {name: [row for row in before if row["part"] == name] for name in PARTS}
    with (
        TemporaryDirectory(prefix="lake-") as directory,
        both_brokers(Path(directory)) as peers,
        spark_session(Path(directory)) as spark,
    ):
        stage = Stage(spark, {peer.name: peer.bootstrap for peer in peers}, Path(directory), SystemClock())
        for name in names:
            rows[name] = []
            for each in PARTS[name](stage, share, rounds):
                row = {"part": name, **each.row()}
                rows[name].append(row)
                say(f"lake: {each.measurement}: {each.figure} {row['sparklog']:.1f}, ratio {row.get('ratio', 0):.2f}")
            keep([*chain.from_iterable(rows.values())])
    return [*chain.from_iterable(rows.values())]
