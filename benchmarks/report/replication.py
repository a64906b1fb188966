"""``benchmarks.replicas``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section
from benchmarks.report.compared import HEADER, compared_rows, judgement

PARTS = ("memory", "throughput", "latency", "catching-up", "rolling", "failing", "survival")
RATE_AIM = 2.0
FAILOVER_AIM_S = 1.0
_TEXT = """\
Three sparklog brokers beside three of Kafka 3.9.1 on one machine, topics of three partitions with three replicas and
`min.insync.replicas=2`, librdkafka as the client of both; how it is measured: `benchmarks/replicas/`, a module a part.
Columns as above. *processor ms a MB* is user and system time of the three brokers together, *RSS* their memory.
*flush.messages=1*: each replica has a record on its disk before it acknowledges. *until it is read*: nobody answers
with acks=0, so the time is until a consumer that waits has the record. *a follower that missed ...* is timed from
its registration in ZooKeeper until it is in the last ISR again. *rolling restart*: each broker in turn is stopped in
order and started while two producers write 200 records/s each; *errors* are records that were reported as not
delivered, *longest* is the longest that one waited for its report. *after ...*: a broker that leads a third of so many
partitions is killed, or stopped, and this is the longest time until each of them acknowledged a record of librdkafka's
again, which asks once a second who leads now; both have a session timeout of 6 s. *once noticed* is what of that is
left when ZooKeeper has the first new state of a partition, or a new controller.

*records lost* counts, of 3,000 records, those that were acknowledged (acks=0: sent) and could not be read when all
brokers ran again. A power cut is a SIGKILL and the loss of all that the broker's disk had not flushed: each broker is
on a file system of its own, which is shut down without its journal's last entries. Where nothing is promised, the
count is of what had been acknowledged and was on its way. What the settings promise (`docs/replication.md`):

| what was acknowledged survives | acks=0 | acks=1 | acks=all | acks=all, `flush.messages=1` |
| --- | --- | --- | --- | --- |
| the leader's process is killed | what a follower has | what a follower has | yes | yes |
| power cut of the leader | what a follower has | what a follower has | yes | yes |
| power cut of *m* - 1 brokers, `min.insync.replicas=m` | what the others have | what the others have | yes | yes |
| power cut of all | what was flushed | what was flushed | what was flushed | yes |

What was measured of it:"""


def replication(rows: Rows) -> Section:
    """``benchmarks.replicas``: rows of figures, and one a part."""
    compared = [row for row in rows if "ratio" in row]
    ended = {row["part"]: row for row in rows if "failure" in row}
    aims = [Aim("all parts measured whole", _missing(ended) or "they were", not _missing(ended))]
    if judged := [row for row in compared if row["figure"] != "records lost"]:
        aims.append(judgement(judged))
    if rates := [row for row in compared if row["figure"] == "MB/s"]:
        got = "; ".join(f"{row['measurement']}: {row['ratio']:.2f}" for row in rates)
        aims.append(Aim(f"{RATE_AIM:.0f} times Kafka's MB/s", got, all(row["ratio"] >= RATE_AIM for row in rates)))
    if deaths := [row for row in compared if _is_failover(row["measurement"])]:
        got = "; ".join(f"{row['measurement']}: {row['sparklog']:.2f} s" for row in deaths)
        wanted = f"every partition answers librdkafka again less than {FAILOVER_AIM_S:.0f} s after a SIGKILL"
        aims.append(Aim(wanted, got, all(row["sparklog"] < FAILOVER_AIM_S for row in deaths)))
    if kept := [row for row in compared if row["figure"] == "records lost" and _must_be_kept(row["measurement"])]:
        got = "; ".join(f"{row['measurement']}: {row['sparklog']:.0f}" for row in kept if row["sparklog"])
        aims.append(Aim("sparklog loses no record that is promised to survive", got or "none was lost", not got))
    return Section("Three replicas", _TEXT, HEADER, compared_rows(compared), aims, _when(ended))


def _must_be_kept(measurement: str) -> bool:
    return "acks=all" in measurement and (not measurement.startswith("power cut of all") or "flush" in measurement)


def _is_failover(measurement: str) -> bool:
    return measurement.startswith("after SIGKILL") and not measurement.endswith("once noticed")


def _missing(ended: dict[str, dict[str, object]]) -> str:
    """What was not measured, and why."""
    missing = [f"{name} was not measured" for name in PARTS if name not in ended]
    for name, row in ended.items():
        if row["rounds"] != row["of"] or row["failure"]:
            missing.append(f"{name}: {row['rounds']} of {row['of']} rounds; {row['failure']}")
    return "; ".join(missing)


def _when(ended: dict[str, dict[str, object]]) -> list[str]:
    return [f"Measured {row['date']} in {row['seconds']:.0f} s: {name}." for name, row in ended.items()]
