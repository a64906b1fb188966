"""``benchmarks.delivery``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section
from benchmarks.report.compared import HEADER, compared_rows, judgement

MEMORY_RATIO_AIM = 5.0
_TEXT = """\
The same two brokers, measured in the same way; how: `benchmarks/delivery.py`. *eight producers* are eight processes of
confluent-kafka, each with a partition of its own, on the machine's two cores beside the broker: they and the broker
share what there is. *at 20 MB/s* is the time from when a record was due to be sent to a waiting consumer's having it.
*join s* is from the first request of a hundred members to the assignment of the last, *leave s* from one member's
leaving to the assignment of the last of the others. Transactions have one record each."""


def delivery(rows: Rows) -> Section:
    """``benchmarks.delivery``."""
    paced = next(row for row in rows if row["figure"] == "p99 ms")
    memory = rows[-1]
    aims = [
        judgement(rows),
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
    return Section("Many clients, latency, groups and transactions", _TEXT, HEADER, compared_rows(rows), aims)
