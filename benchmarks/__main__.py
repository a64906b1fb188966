"""``python -m benchmarks [NAME...]``, of ``BENCHMARKS``: run them and write the page.

Without a name it runs them all. Each prints its table, renews its section of ``docs/performance.md`` as soon as it has
run, and leaves the others; its raw numbers stay in ``build/benchmarks``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from sparklog.clock import SystemClock
from sparklog.local.java import find_java

ROOT = Path(__file__).parents[1]
RAW = ROOT / "build" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"
QUIET_WAIT_S = 30
ROUNDS = 3
"""Of each part of replication and of the lake, and of each case of compaction, at most."""
PACKAGES = ("confluent-kafka", "crc32c", "delta-spark", "kafka-python", "pyarrow", "pyspark")

_HEAD = """\
# Performance

This page is made by `make bench` (`ARGS="broker"` renews one section); its raw numbers are in `build/benchmarks`.
Compare figures of one section only, and trust ratios more than rates: both sides of a ratio ran in turn, in one run, on
one machine.
"""

_TAIL = """\
## What this does not show

- More cores. A sparklog broker is one process with one busy thread; a host is filled by running several brokers. One
  Kafka broker uses every core by itself, and what many clients on many cores make of that is not measured here.
- More than three brokers, requests for many partitions, and disks slower than the page cache.
- What the check of each batch costs a producer. The aim was 5 % of its throughput. Not reached: 9 % with lz4 and 12 %
  with zstd from librdkafka, and 8 to 15 % of the append alone of 1 MB batches of 100 B; figures of 2026-11-22 in
  [adr/0014](adr/0014-what-a-batch-must-prove-before-it-is-stored.md).
"""


_MARK = "<!-- {} -->"
_MARKS = re.compile(r"<!-- (\w+) -->")
"""Where a benchmark's section begins, by its name, so that renewing one leaves the others as they are."""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _codec(_: argparse.Namespace) -> report.Rows:
    from benchmarks import codec

    return codec.run()


def _log(_: argparse.Namespace) -> report.Rows:
    from benchmarks import log

    return log.run(say=_say)


def _broker(_: argparse.Namespace) -> report.Rows:
    from benchmarks import broker

    return broker.run(say=_say)


def _replication(options: argparse.Namespace) -> report.Rows:
    """Each part's rows are kept as it ends, and those of parts that were not asked for stay as they were."""
    from benchmarks.replicas import parts
    from benchmarks.replicas.effort import Effort

    before, keep = _kept_parts("replication", options)
    effort = Effort(options.share, options.rounds, tuple(map(int, options.failing)))
    return parts.run(options.parts or parts.NAMES, effort, before, _say, keep)


def _kept_parts(name: str, options: argparse.Namespace) -> tuple[report.Rows, Callable[[report.Rows], None]]:
    """The rows of an earlier run, and what keeps those of this one; neither for a trial."""
    known = RAW / f"{name}-parts.json"
    if not _is_whole(options):
        return [], lambda _: None

    def keep(rows: report.Rows) -> None:
        RAW.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(rows, indent=1) + "\n")

    return json.loads(known.read_text()) if known.exists() else [], keep


def _scale(options: argparse.Namespace) -> report.Rows:
    from benchmarks import scale

    return scale.run(options.share, say=_say)


def _compaction(options: argparse.Namespace) -> report.Rows:
    """As for replication."""
    from benchmarks import compaction

    before, keep = _kept_parts("compaction", options)
    return compaction.run(options.parts or compaction.NAMES, options.share, options.rounds, before, _say, keep)


def _stalls(options: argparse.Namespace) -> report.Rows:
    from benchmarks.stalls import measuring

    return measuring.run(options.parts, options.rounds, _say)


def _delivery(_: argparse.Namespace) -> report.Rows:
    from benchmarks import delivery

    return delivery.run(say=_say)


def _security(_: argparse.Namespace) -> report.Rows:
    from benchmarks.security import measurements

    return measurements.run(say=_say)


def _client(_: argparse.Namespace) -> report.Rows:
    from benchmarks import client

    return client.run(say=_say)


def _spark(_: argparse.Namespace) -> report.Rows:
    from benchmarks import spark

    return spark.run(say=_say)


def _lake(options: argparse.Namespace) -> report.Rows:
    """As for replication."""
    from benchmarks.lake import parts

    before, keep = _kept_parts("lake", options)
    return parts.run(options.parts or parts.NAMES, options.share, options.rounds, before, _say, keep)


BENCHMARKS: dict[str, Callable[[argparse.Namespace], report.Rows]] = {
    "codec": _codec,
    "log": _log,
    "compaction": _compaction,
    "broker": _broker,
    "replication": _replication,
    "scale": _scale,
    "stalls": _stalls,
    "delivery": _delivery,
    "security": _security,
    "client": _client,
    "spark": _spark,
    "lake": _lake,
}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one benchmark; its rows, with when and where it ran. They are kept unless it was a trial."""
    clock = SystemClock()
    busy = machine.await_quiet(clock, QUIET_WAIT_S)
    _say(f"{name}: begins; others keep the machine {busy:.0%} busy")
    start = clock.monotonic()
    rows = BENCHMARKS[name](options)
    kept = {
        "date": datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine.describe(),
        "versions": _versions(),
        "busy": busy,
        "seconds": clock.monotonic() - start,
        "rows": rows,
    }
    if _is_whole(options):
        RAW.mkdir(parents=True, exist_ok=True)
        (RAW / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return kept


def _is_whole(options: argparse.Namespace) -> bool:
    """Whether what is measured may stand on the page."""
    is_part = bool(options.parts) and "stalls" in options.names
    return bool(options.share >= 1 and options.rounds >= ROUNDS and not is_part)


def _versions() -> str:
    packages = ", ".join(f"{name} {machine.installed(name)}" for name in PACKAGES)
    return f"{packages}, Kafka 3.9.1 on Java {find_java().version}"


def page(kept: dict[str, dict[str, Any]], before: str) -> str:
    """The page as it was ``before``, with new sections from these numbers."""
    parts = _sections(before)
    for name, each in kept.items():
        section = report.SECTIONS[name](each["rows"]).as_markdown()
        parts[name] = (
            f"{section}\nMeasured {each['date']} in {each['seconds']:.0f} s on {each['machine']}; {each['versions']}. "
            f"Before it began, others kept the machine {each['busy']:.0%} busy.\n"
        )
    marked = [f"{_MARK.format(name)}\n\n{parts[name].strip()}\n" for name in BENCHMARKS if name in parts]
    return "\n".join([_HEAD, *marked, _MARK.format("end"), "", _TAIL])


def _sections(text: str) -> dict[str, str]:
    """What stands in a page under each mark."""
    pieces = _MARKS.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def main(argv: list[str]) -> int:
    """Exit code 0, whatever the aims: a benchmark reports."""
    options = _options(argv)
    for name in options.names or list(BENCHMARKS):
        kept = measure(name, options)
        sys.stdout.write(f"\n{report.SECTIONS[name](kept['rows']).as_text()}")
        if _is_whole(options):
            PAGE.write_text(page({name: kept}, PAGE.read_text()))
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME", help=", ".join(BENCHMARKS))
    trial = "less than {} is a trial, which is printed and not kept"
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help=f"of the load of replication, scale, compaction and lake; {trial.format(1)}",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"of replication, lake, compaction and stalls at most; {trial.format(ROUNDS)}",
    )
    parser.add_argument(
        "--parts",
        type=_words,
        default=[],
        metavar="PART,...",
        help="of replication, lake or compaction, or the APIs of stalls; all unless said",
    )
    failing = "of the topics of replication whose leaders die; 10,1000 unless said"
    parser.add_argument("--failing", type=_words, default=["10", "1000"], metavar="PARTITIONS,...", help=failing)
    return parser.parse_args(argv)


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
