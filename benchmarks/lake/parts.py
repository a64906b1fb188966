"""The parts in their order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.lake import freshness, loading, offloading, union, upserting
from benchmarks.parts import Rows, check_names, run_parts
from benchmarks.peers import both_brokers
from benchmarks.spark import spark_session
from benchmarks.spark_cases import Stage
from sparklog.clock import SystemClock

Part = Callable[[Stage, float, int], Iterator[Comparison]]


def _freshness(stage: Stage, share: float, _: int) -> Iterator[Comparison]:
    yield from freshness.measure(stage, share)


PARTS: dict[str, Part] = {
    "offload": offloading.measure,
    "freshness": _freshness,
    "union": union.measure,
    "upsert": upserting.measure,
    "load": loading.measure_loads,
    "backup": loading.measure_backups,
}
NAMES = tuple(PARTS)


def run(
    names: Iterable[str],
    share: float,
    rounds: int,
    before: Rows,
    say: Callable[[str], None],
    keep: Callable[[Rows], None],
) -> Rows:
    """See ``run_parts``. A row a figure, see ``Comparison.row``."""
    names = list(names)
    check_names(names, PARTS)
    with (
        TemporaryDirectory(prefix="lake-") as directory,
        both_brokers(Path(directory)) as peers,
        spark_session(Path(directory)) as spark,
    ):
        stage = Stage(spark, {peer.name: peer.bootstrap for peer in peers}, Path(directory), SystemClock())

        def rows_of(part: Part) -> Iterator[dict[str, Any]]:
            for each in part(stage, share, rounds):
                row = each.row()
                say(f"lake: {each.measurement}: {each.figure} {row['sparklog']:.1f}, ratio {row.get('ratio', 0):.2f}")
                yield row

        return run_parts({name: partial(rows_of, part) for name, part in PARTS.items()}, names, before, keep)
