"""``benchmarks.compaction``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, extremes, number

PUBLISHED_SECONDS = 1478.2
_BESIDE = "one record, acks=1, beside {}"
_TEXT = """\
One log compacted by our worker process beside Kafka 3.9.1's own cleaner (its `Cleaner`, in a warm JVM of 3 GB, serial
collector), each of its own copy of the same directory, in turn, on one core, from the page cache; how it is measured:
`benchmarks/compaction.py`. Segments of 100 MB, batches of 16 KB before compression, keys drawn evenly. *MB/s* is of the
log as it was, whatever was read twice; *of CPU time* the same by the processor time that both of our processes, or the
JVM, took; *index* the first phase alone, by what it read. Figures are the best of the rounds; `ratio` is between these,
more than 1 being better, and `from - to` the extremes of the rounds. The last rows are of running
brokers that may use all cores: a client sends a record every 5 ms to one topic while another is compacted
(`benchmarks/disturbance.py`)."""


def compaction(rows: Rows) -> Section:
    """``benchmarks.compaction``."""
    return Section(
        "Log compaction",
        _TEXT,
        ["", "figure", "sparklog", "Kafka", "ratio", "from - to"],
        [
            [
                row["measurement"],
                row["figure"],
                number(row["sparklog"]),
                number(row["other"]),
                f"{row['ratio']:.2f}",
                extremes(row["ratios"]) if len(row["ratios"]) > 1 else "",
            ]
            for row in rows
        ],
        [_rates(rows), _memory(rows)],
        [_disturbance(rows), _model(rows)],
    )


def _rates(rows: Rows) -> Aim:
    ratios = [row["ratio"] for row in rows if row["figure"] == "MB/s"]
    got = f"{min(ratios):.2f} to {max(ratios):.2f} times its rate"
    return Aim("compact any log of these no slower than Kafka 3.9.1", got, min(ratios) >= 1)


def _memory(rows: Rows) -> Aim:
    ratios = [row["ratio"] for row in rows if row["figure"] == "MB of memory"]
    got = f"the JVM, which takes what it is allowed, has {min(ratios):.1f} to {max(ratios):.1f} times as much"
    return Aim("compact them in no more memory than Kafka's JVM has resident", got, min(ratios) >= 1)


def _disturbance(rows: Rows) -> str:
    beside = {(row["measurement"], row["figure"]): row for row in rows if "beside" in row["measurement"]}
    idle = beside[_BESIDE.format("no compaction"), "p99 ms"]
    busy = beside[_BESIDE.format("a compaction"), "p99 ms"]
    return (
        f"What a producer notices: the 99th percentile goes from {idle['sparklog']:.2f} to {busy['sparklog']:.2f} ms "
        f"here, from {idle['other']:.2f} to {busy['other']:.2f} ms in Kafka."
    )


def _model(rows: Rows) -> str:
    row = next(row for row in rows if row["measurement"].startswith("model"))
    return (
        f"A model, not a measurement: the row that says so is the size of a published production log (45,218.7 MB of "
        f"2^20 bytes, 161 million messages) divided by the rate measured here for records of that size, in memory and "
        f"with 200,000 keys. There Kafka took {PUBLISHED_SECONDS:,} s (30.6 MB/s) on another machine; by this model "
        f"sparklog takes {row['sparklog']:,.0f} s on this one, and Kafka {row['other']:,.0f} s."
    )
