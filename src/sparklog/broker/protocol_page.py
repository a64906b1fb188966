"""``docs/protocol.md``: what is served, told by the registry itself.

``python -m sparklog.broker.protocol_page > docs/protocol.md`` writes it anew.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import sparklog
from sparklog.broker.registry import HANDLERS, Handler
from sparklog.compiled import source_of
from sparklog.protocol.messages import is_flexible

_HEAD = """\
# Protocol

The APIs that a broker serves, in Kafka 3.9's numbers and versions; those from 20000 on are sparklog's own, and
Kafka's clients pass it over. ApiVersions offers exactly these; a request for another API or version ends the
connection. Made from the registry: `python -m sparklog.broker.protocol_page`.

| number | API | versions | flexible from | what it does here |
| --- | --- | --- | --- | --- |
"""


_LEFT_HEAD = """
## What Kafka 3.9 offers beside these

| what | why it is not here |
| --- | --- |
"""
_LEFT = (
    ("4 LeaderAndIsr 0 to 4, 5 StopReplica 0 to 2, 6 UpdateMetadata 0 to 6", "between brokers before Kafka 2.8"),
    (
        "7 ControlledShutdown 0 to 2, 27 WriteTxnMarkers 0, 56 AlterPartition 0 and 1",
        "between brokers; Kafka 3.9's speak those above",
    ),
    ("57 UpdateFeatures, 58 Envelope", "between brokers and a KRaft controller"),
    ("71 and 72 telemetry, 74 ListClientMetricsResources", "no telemetry is collected, so none is asked for"),
)
_NEWER = """
Newer than Kafka 3.9: Produce 12, ListOffsets 10, Metadata 13, InitProducerId 6, EndTxn 5, TxnOffsetCommit 5,
DescribeCluster 2, ListTransactions 2, ConsumerGroupHeartbeat 1, ConsumerGroupDescribe 1. DescribeTopicPartitions and
the two of the consumer protocol are in Kafka 3.9 only without ZooKeeper.
"""


def page() -> str:
    """The whole file."""
    rows = "".join(f"{_row(HANDLERS[number])}\n" for number in sorted(HANDLERS)).replace("``", "`")
    left = "".join(f"| {what} | {why} |\n" for what, why in _LEFT)
    return _HEAD + rows + _LEFT_HEAD + left + _NEWER


def promise_of(handler: Handler) -> str:
    """What it does, in a sentence that begins with its name. From the source: compiled modules have no docstring."""
    source = Path(sparklog.__file__).parents[1] / source_of(handler.module)
    promise = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(promise.split("\n\n")[0].split())


def _row(handler: Handler) -> str:
    versions = handler.versions
    flexible = next((str(each) for each in versions if is_flexible(handler.api, each)), "none")
    name, _, promise = promise_of(handler).partition(": ")
    first, last = versions.start, versions.stop - 1
    span = str(first) if first == last else f"{first} to {last}"
    return f"| {handler.api.value} | {name} | {span} | {flexible} | {promise} |"


if __name__ == "__main__":
    sys.stdout.write(page())
