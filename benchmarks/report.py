"""From raw numbers to tables: on the terminal, and in ``docs/performance.md``.

A section is one benchmark's rows, shown: what each row's columns are, what was aimed at, and whether it was reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]

CODEC_RECORDS_AIM = 10_000_000
CODEC_RATE_AIM = 2000
SPARK_RATIO_AIM = 1.0
LOG_SHARE_AIM = 0.8
RECOVERY_RATIO_AIM = 2.0
OPEN_SECONDS_AIM = 5.0
MEMORY_RATIO_AIM = 5.0

_CODEC_TEXT = """\
Batches to Arrow columns and back, one core. MB are of uncompressed batch bytes; each figure is the best of several
passes. How it is measured: `benchmarks/codec.py`."""
_BROKER_TEXT = """\
One sparklog broker beside one Kafka 3.9.1 broker (1 GiB heap, warmed up), the same load on each in turn, one partition,
one replica, on one disk; how it is measured: `benchmarks/broker.py`. Figures are medians; `ratio` is the median over
the rounds of how many times better sparklog was, more than 1 being better, and `from - to` its extremes. *librdkafka*
is confluent-kafka in one Python process, whose cost a record is the bottleneck at 100 B; *raw requests* are encoded
beforehand, so that the broker is. *broker CPU us* is the broker's CPU time in microseconds for each record, or for each
request where the load is raw requests or round trips."""
_LOG_TEXT = """\
The log on disk by itself, no network and no broker, one thread, from and to the page cache; how it is measured:
`benchmarks/log.py`, `recovery.py`, `opening.py`. *beside* is what the same bytes cost done plainly: `pwrite`, a batch
each, to a file; `sendfile`, a range of 1 MB each, to the same connection; or what Kafka 3.9.1 needs for a copy of the
same directory, by its own log, in a fresh JVM of 1 GiB. Figures are the best of the rounds; `ratio` is between these,
more than 1 being better, and `from - to` the extremes of the rounds."""
_DELIVERY_TEXT = """\
The same two brokers, measured in the same way; how: `benchmarks/delivery.py`. *eight producers* are eight processes of
confluent-kafka, each with a partition of its own, on the machine's two cores beside the broker: they and the broker
share what there is. *at 20 MB/s* is the time from when a record was due to be sent to a waiting consumer's having it.
*join s* is from the first request of a hundred members to the assignment of the last, *leave s* from one member's
leaving to the assignment of the last of the others. Transactions have one record each."""
_SPARK_TEXT = """\
To nowhere (`noop`), one local session: `format("sparklog")` on sparklog and on Kafka 3.9.1, beside Spark's own Kafka
connector on Kafka 3.9.1, the same records. `ratio` is to the connector reading the same columns. How it is measured:
`benchmarks/spark_read.py`."""


@dataclass(frozen=True)
class Aim:
    """Something wanted, and what came of it."""

    wanted: str
    got: str
    reached: bool

    def __str__(self) -> str:
        return f"{'Reached' if self.reached else '**Not reached**'}: {self.wanted}; {self.got}."


@dataclass
class Section:
    """One table with what is to be said about it. The first column is text, the others are numbers."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]
    aims: list[Aim]
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        widths = [max(len(row[column]) for row in [self.header, *self.rows]) for column in range(len(self.header))]
        lines = [
            "  ".join(
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [self.header, *self.rows]
        ]
        said = [str(aim).replace("*", "") for aim in self.aims] + self.notes
        return "\n".join([self.title, "", *lines, "", *said]) + "\n"

    def as_markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        table = [f"| {' | '.join(row)} |" for row in [self.header, rule, *self.rows]]
        said = [f"- {line}" for line in (*map(str, self.aims), *self.notes)]
        return "\n".join([f"## {self.title}", "", self.text, "", *table, "", *said]) + "\n"


def codec(rows: Rows) -> Section:
    """``benchmarks.codec``."""

    def rate(operation: str, size: int, figure: str) -> float:
        return max(
            float(row[figure])
            for row in rows
            if (row["operation"], row["record_size"], row["compression"]) == (operation, size, "none")
            and not row["headers"]
        )

    aims = []
    for operation in ("decode", "encode"):
        got = rate(operation, 100, "records_per_second")
        wanted = f"{operation} 10 M records/s of 100 B a core, uncompressed"
        aims.append(Aim(wanted, f"{got / 1e6:.1f} M", got >= CODEC_RECORDS_AIM))
    got = rate("decode", 1000, "mb_per_second")
    aims.append(
        Aim("decode 2 GB/s of 1 KB records a core, uncompressed", f"{got / 1000:.1f} GB/s", got >= CODEC_RATE_AIM)
    )
    return Section(
        "Record codec",
        _CODEC_TEXT,
        ["", "M records/s", "MB/s"],
        [
            [
                f"{row['operation']}, {row['record_size']} B, {row['compression']}" + ", headers" * row["headers"],
                f"{row['records_per_second'] / 1e6:.2f}",
                f"{row['mb_per_second']:,}",
            ]
            for row in rows
        ],
        aims,
    )


def broker(rows: Rows) -> Section:
    """``benchmarks.broker``."""
    compared = [row for row in rows if "ratio" in row]
    limits = {row["measurement"]: row["limit"] for row in rows if "limit" in row}
    return Section(
        "Broker",
        _BROKER_TEXT,
        _COMPARED_HEADER,
        _compared_rows(compared),
        [_judgement(compared)],
        _distances(compared, limits),
    )


def delivery(rows: Rows) -> Section:
    """``benchmarks.delivery``."""
    paced = next(row for row in rows if row["figure"] == "p99 ms")
    memory = rows[-1]
    aims = [
        _judgement(rows),
        Aim(
            "p99 of the latency at 20 MB/s no worse than Kafka's",
            f"{paced['sparklog']:.2f} ms beside {paced['kafka']:.2f} ms, {paced['ratio']:.2f}",
            paced["ratio"] >= 1,
        ),
        Aim(
            "memory under a fifth of Kafka's",
            f"{memory['sparklog']:.0f} MB beside {memory['kafka']:.0f} MB",
            memory["ratio"] >= MEMORY_RATIO_AIM,
        ),
    ]
    return Section(
        "Many clients, latency, groups and transactions", _DELIVERY_TEXT, _COMPARED_HEADER, _compared_rows(rows), aims
    )


_COMPARED_HEADER = ["", "figure", "sparklog", "Kafka", "ratio", "from - to"]


def _compared_rows(compared: Rows) -> list[list[str]]:
    return [
        [
            row["measurement"],
            row["figure"],
            _number(row["sparklog"]),
            _number(row["kafka"]),
            f"{row['ratio']:.2f}",
            f"{min(row['ratios']):.2f} - {max(row['ratios']):.2f}",
        ]
        for row in compared
    ]


def _judgement(compared: Rows) -> Aim:
    judged = [row for row in compared if row["figure"] != "broker CPU us"]
    behind = [row for row in judged if max(row["ratios"]) < 1]
    ahead = [row for row in judged if min(row["ratios"]) > 1]
    mixed = [row for row in judged if row not in behind and row not in ahead]
    return Aim(
        "not behind Kafka 3.9.1 in any figure",
        f"of {len(judged)} figures {len(ahead)} are ahead in every round, "
        f"{len(behind)} behind in every round{_list(behind)}, in {len(mixed)} the rounds disagree{_list(mixed)}",
        not behind,
    )


def _list(rows: Rows) -> str:
    named = "; ".join(f"{row['measurement']}: {row['figure']}, {row['ratio']:.2f}" for row in rows)
    return f" ({named})" if named else ""


def _distances(compared: Rows, limits: dict[str, float]) -> list[str]:
    """How much of what one thread can do at all the broker does."""
    notes = []
    for doing, kind in (("receive", "produce, acks=1"), ("send", "fetch")):
        limit = limits[f"limit of one thread: {doing}"]
        best = max(
            row["sparklog"]
            for row in compared
            if row["measurement"].startswith("raw") and row["measurement"].endswith(kind) and row["figure"] == "MB/s"
        )
        notes.append(
            f"Distance to the limit: one thread that only {_BARE_WORK[doing]} does {limit:,.0f} MB/s here; "
            f"the broker's best {kind.partition(',')[0]} is {best / limit:.0%} of that."
        )
    return notes


_BARE_WORK = {
    "receive": "receives, computes CRC-32C and writes to the page cache",
    "send": "calls `sendfile` on a cached file",
}


def log(rows: Rows) -> Section:
    """``benchmarks.log``."""
    return Section(
        "Log on disk",
        _LOG_TEXT,
        ["", "figure", "sparklog", "beside", "", "ratio", "from - to"],
        [
            [
                row["measurement"],
                row["figure"],
                _number(row["sparklog"]),
                row["peer"],
                _number(row["other"]) if "other" in row else "",
                f"{row['ratio']:.2f}" if "ratio" in row else "",
                f"{min(row['ratios']):.2f} - {max(row['ratios']):.2f}" if len(row.get("ratios", [])) > 1 else "",
            ]
            for row in rows
        ],
        [*_log_shares(rows), _log_recovery(rows), _log_opening(rows)],
        [_log_distance(rows)],
    )


def _log_distance(rows: Rows) -> str:
    """How much of what no append can do without an append is."""
    appended, checksum = (
        next(row for row in rows if row["measurement"] == name and row["figure"] == "us a batch")
        for name in ("append, 1 KB in 1 MB batches", "append, 1 KB in 1 MB batches: CRC-32C of it")
    )
    bare = appended["other"] + checksum["sparklog"]
    return (
        f"Distance to the limit: `pwrite` and CRC-32C of a batch of 1 MB take {bare:.0f} us here; "
        f"that is {bare / appended['sparklog']:.0%} of what an append of it takes."
    )


def _log_shares(rows: Rows) -> list[Aim]:
    aims = []
    for doing in ("append", "read"):
        shares = [
            row["ratio"]
            for row in rows
            if row["measurement"].startswith(doing) and "1 MB batches" in row["measurement"] and row["figure"] == "MB/s"
        ]
        wanted = f"{doing} batches of 1 MB at {LOG_SHARE_AIM:.0%} of the plain call's rate at least"
        aims.append(Aim(wanted, f"{min(shares):.0%} to {max(shares):.0%}", min(shares) >= LOG_SHARE_AIM))
    return aims


def _log_recovery(rows: Rows) -> Aim:
    ratios = [row["ratio"] for row in rows if row["measurement"].startswith("recovery")]
    got = f"{min(ratios):.1f} to {max(ratios):.1f} times"
    return Aim("recover at least twice as fast as Kafka 3.9.1", got, min(ratios) >= RECOVERY_RATIO_AIM)


def _log_opening(rows: Rows) -> Aim:
    row = next(row for row in rows if row["measurement"].startswith("open") and "clean" in row["measurement"])
    wanted = f"{row['measurement']} within {OPEN_SECONDS_AIM:g} s"
    return Aim(wanted, f"{row['sparklog']:.1f} s", row["sparklog"] <= OPEN_SECONDS_AIM)


def spark(rows: Rows) -> Section:
    """``benchmarks.spark_read``."""
    aims = [
        Aim(
            "read 1 KB records at least as fast as Spark's Kafka connector",
            f"{row['ratio']:.1f} times",
            row["ratio"] >= SPARK_RATIO_AIM,
        )
        for row in rows
        if row["record_size"] == 1000 and row["reader"] == "sparklog on sparklog"
    ]
    return Section(
        "Spark batch read",
        _SPARK_TEXT,
        ["", "records/s", "MB/s", "ratio"],
        [
            [
                f"{row['record_size']} B, {row['reader']}",
                f"{row['records_per_second']:,}",
                f"{row['mb_per_second']:,}",
                f"{row['ratio']:.2f}",
            ]
            for row in rows
        ],
        aims,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


SECTIONS: dict[str, Callable[[Rows], Section]] = {
    "codec": codec,
    "log": log,
    "broker": broker,
    "delivery": delivery,
    "spark": spark,
}
