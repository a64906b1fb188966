"""``benchmarks.client``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, extremes, number
from benchmarks.report.compared import judgement, ratio_aim

RATE_AIMS = {
    "Producer.send, 100 B": 150_000,
    "Consumer.poll, 100 B": 200_000,
    "Consumer.poll_arrow, 100 B": 1_000_000,
}
"""Records a second."""
RATIO_AIMS = (
    ("Producer.send at 0.7 of confluent-kafka's rate", 0.7, {"Producer.send, 100 B": "records/s"}),
    (
        "half of the round trips no slower than confluent-kafka's",
        1.0,
        {"Producer.send, 100 B: round trip": "p50 ms", "AsyncProducer.send, 100 B: round trip": "p50 ms"},
    ),
)
"""What is wanted, of the ratio to confluent-kafka of which figures."""
_TEXT = """\
`sparklog.client` beside confluent-kafka and kafka-python, from and to the same sparklog broker, each by itself in a
process, all with the settings that ours has when it is told none: acks=all, idempotence, batches of 128 KiB that linger
for 5 ms, 500 records a poll; how it is measured: `benchmarks/client.py`. `Producer.send`, `AsyncProducer.send` and
`Producer.send_arrow` are beside their `produce` and `send`, *keyed* with keys of 16 B and four partitions;
`Consumer.poll` and `Consumer.poll_arrow` beside `consume` and `poll`; *iteration* beside one `poll` a record and
iteration. *round trip* is at linger 0, from handing over one record to hearing that it is delivered. confluent-kafka is
C and makes a Python object of a record's value when it is asked for it, as it is here; neither has columns. Figures are
medians; `ratio` is the median over the rounds of how many times better ours was in the same round, more than 1 being
better, and `from - to` its extremes."""


def client(rows: Rows) -> Section:
    """A line a figure of ours, both of the others beside it."""
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    return Section(
        "Python client",
        _TEXT,
        ["", "figure", "sparklog", *(cell for peer in peers for cell in (peer, "ratio", "from - to"))],
        [_line(rows, row) for row in rows if row["peer"] == peers[0]],
        [
            *(_rate(rows, measurement, aim) for measurement, aim in RATE_AIMS.items()),
            *(ratio_aim([row for row in rows if row["peer"] == "confluent-kafka"], *each) for each in RATIO_AIMS),
            *(judgement([row for row in rows if row["peer"] == peer], peer) for peer in peers),
        ],
    )


def _line(rows: Rows, first: dict[str, object]) -> list[str]:
    same = [row for row in rows if all(row[name] == first[name] for name in ("measurement", "figure"))]
    line = [str(first["measurement"]), str(first["figure"]), number(same[0]["sparklog"])]
    for row in same:
        line += [number(row["other"]), f"{row['ratio']:.2f}", extremes(row["ratios"])]
    return line


def _rate(rows: Rows, measurement: str, aim: int) -> Aim:
    got = next(row["sparklog"] for row in rows if row["measurement"] == measurement)
    return Aim(f"{measurement}: {aim:,} records/s at least", f"{got:,.0f}", got >= aim)
