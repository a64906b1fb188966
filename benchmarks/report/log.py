"""``benchmarks.log``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, extremes, number

SHARE_AIM = 0.8
RECOVERY_RATIO_AIM = 2.0
OPEN_SECONDS_AIM = 5.0
_TEXT = """\
The log on disk by itself, no network and no broker, one thread, from and to the page cache; how it is measured:
`benchmarks/log.py`, `recovery.py`, `opening.py`. *beside* is what the same bytes cost done plainly: `pwrite`, a batch
each, to a file; `sendfile`, a range of 1 MB each, to the same connection; or what Kafka 3.9.1 needs for a copy of the
same directory, by its own log, in a fresh JVM of 1 GiB. Figures are the best of the rounds; `ratio` is between these,
more than 1 being better, and `from - to` the extremes of the rounds."""


def log(rows: Rows) -> Section:
    """``benchmarks.log``."""
    return Section(
        "Log on disk",
        _TEXT,
        ["", "figure", "sparklog", "beside", "", "ratio", "from - to"],
        [
            [
                row["measurement"],
                row["figure"],
                number(row["sparklog"]),
                row["peer"],
                number(row["other"]) if "other" in row else "",
                f"{row['ratio']:.2f}" if "ratio" in row else "",
                extremes(row["ratios"]) if len(row.get("ratios", [])) > 1 else "",
            ]
            for row in rows
        ],
        [*_shares(rows), _recovery(rows), _opening(rows)],
        [_distance(rows)],
    )


def _distance(rows: Rows) -> str:
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


def _shares(rows: Rows) -> list[Aim]:
    aims = []
    for doing in ("append", "read"):
        shares = [
            row["ratio"]
            for row in rows
            if row["measurement"].startswith(doing) and "1 MB batches" in row["measurement"] and row["figure"] == "MB/s"
        ]
        wanted = f"{doing} batches of 1 MB at {SHARE_AIM:.0%} of the plain call's rate at least"
        aims.append(Aim(wanted, f"{min(shares):.0%} to {max(shares):.0%}", min(shares) >= SHARE_AIM))
    return aims


def _recovery(rows: Rows) -> Aim:
    ratios = [row["ratio"] for row in rows if row["measurement"].startswith("recovery")]
    got = f"{min(ratios):.1f} to {max(ratios):.1f} times"
    return Aim("recover at least twice as fast as Kafka 3.9.1", got, min(ratios) >= RECOVERY_RATIO_AIM)


def _opening(rows: Rows) -> Aim:
    row = next(row for row in rows if row["measurement"].startswith("open") and "clean" in row["measurement"])
    wanted = f"{row['measurement']} within {OPEN_SECONDS_AIM:g} s"
    return Aim(wanted, f"{row['sparklog']:.1f} s", row["sparklog"] <= OPEN_SECONDS_AIM)
