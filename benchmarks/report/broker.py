"""``benchmarks.broker``."""

from __future__ import annotations

from benchmarks.report.base import Rows, Section
from benchmarks.report.compared import HEADER, compared_rows, judgement, ratio_aim

_TEXT = """\
One sparklog broker beside one Kafka 3.9.1 broker (1 GiB heap, warmed up), the same load on each in turn, one partition,
one replica, on one disk; how it is measured: `benchmarks/broker.py`. Figures are medians; `ratio` is the median over
the rounds of how many times better sparklog was, more than 1 being better, and `from - to` its extremes. *librdkafka*
is confluent-kafka in one Python process, whose cost a record is the bottleneck at 100 B; *raw requests* are encoded
beforehand, so that the broker is. *broker CPU us* is the broker's CPU time in microseconds for each record, or for each
request where the load is raw requests or round trips."""
RATIO_AIMS = (
    (
        "four times Kafka's one-record requests a second",
        4.0,
        {"librdkafka, 100 B: one record a request, acks=1": "records/s"},
    ),
    (
        "half of the round trips no slower than Kafka's",
        1.0,
        {
            "librdkafka, 100 B: round trip, acks=all": "p50 ms",
            "raw requests, 100 B: round trip, acks=1": "p50 ms",
            "librdkafka, 100 B: producer to consumer": "p50 ms",
        },
    ),
)
"""What is wanted, of the ratio of which figures."""
_BARE_WORK = {
    "receive": "receives, computes CRC-32C and writes to the page cache",
    "send": "calls `sendfile` on a cached file",
}


def broker(rows: Rows) -> Section:
    """``benchmarks.broker``."""
    compared = [row for row in rows if "ratio" in row]
    limits = {row["measurement"]: row["limit"] for row in rows if "limit" in row}
    return Section(
        "Broker",
        _TEXT,
        HEADER,
        compared_rows(compared),
        [
            judgement(compared),
            *(ratio_aim(compared, *each) for each in RATIO_AIMS),
        ],
        _distances(compared, limits),
    )


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
