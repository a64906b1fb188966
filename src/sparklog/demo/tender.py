"""The job of the currencies: their changes into a compacted topic, and the topic into a table that is kept in step.

The topic has one partition and takes the changes in their order, each once: how many it has says where to go on,
whatever was killed. The table has a row for each territory with a currency: a later change replaces it, a tombstone
deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from sparklog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.demo.currencies import Change, load_changes, tender_on
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.spark.batch import offload
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.values.formats import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "territory STRING NOT NULL, since DATE NOT NULL, currencies ARRAY<STRING> NOT NULL"
_KEPT = {"cleanup.policy": "compact", "retention.ms": "-1"}


@dataclass(frozen=True)
class TenderOptions:
    """What the job is told. ``until`` is the first day whose changes are left out; None takes all."""

    bootstrap: str
    topic: str
    table: str
    until: date | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More settings of the client, such as ``security.protocol``."""


class TenderReport(NamedTuple):
    """What a run did, and what the table has now."""

    written: int
    """Changes that the topic did not have yet."""
    commits: int
    territories: int
    currencies: int
    day: date | None
    """Of the last change in the topic."""
    agrees: bool
    """Whether the table is what the data say of that day."""

    def __str__(self) -> str:
        said = "as the data say" if self.agrees else "which is NOT what the data say"
        return (
            f"{self.written} changes written, {self.commits} commits; on {self.day} the table has"
            f" {self.territories} territories with {self.currencies} currencies, {said}"
        )


def run(spark: SparkSession, options: TenderOptions) -> TenderReport:
    """Write what the topic lacks, bring the table up to date, and look whether it is right.

    Raises ConfigError for a topic of more than the changes, SparklogError and Spark's errors. The next run goes on.
    """
    changes = load_changes()
    settings = {**options.client, "bootstrap.servers": options.bootstrap}
    place = TopicPartition(options.topic, 0)
    _make_topic(settings, options.topic)
    there = _count(settings, place)
    if there > len(changes):
        raise ConfigError(f"topic {options.topic!r} has {there} records, more than the {len(changes)} changes")
    until = next((at for at, each in enumerate(changes) if options.until and each.day >= options.until), len(changes))
    _write(settings, place, changes[there:until])
    target = DecodedUpsertTable(options.table, ValueFormat("json", SCHEMA), key_format="string")
    commits = offload.run(
        spark, offload.OffloadOptions(options.bootstrap, (options.topic,), target, client=options.client)
    )
    return _report(spark, options.table, changes[: max(there, until)], max(until - there, 0), len(commits))


def _make_topic(settings: Mapping[str, str], topic: str) -> None:
    with Admin(settings) as admin:
        try:
            admin.create_topics([NewTopic(topic, 1, configs=_KEPT)])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _count(settings: Mapping[str, str], place: TopicPartition) -> int:
    """How many changes were written. A cleaning removes records, and no offsets."""
    with Consumer(settings) as consumer:
        return consumer.end_offsets([place])[place]


def _write(settings: Mapping[str, str], place: TopicPartition, changes: list[Change]) -> None:
    with Producer(settings) as producer:
        sent = [producer.send(place.topic, _value(each), each.territory, partition=place.partition) for each in changes]
    for future in sent:
        future.result()


def _value(change: Change) -> str | None:
    """JSON of ``SCHEMA``; ``day`` is a column of every table."""
    if not change.currencies:
        return None
    since = change.day.isoformat()
    return json.dumps({"territory": change.territory, "since": since, "currencies": change.currencies})


def _report(spark: SparkSession, table: str, changes: list[Change], written: int, commits: int) -> TenderReport:
    day = changes[-1].day if changes else None
    rows = spark.read.format("delta").load(table).select("territory", "currencies").collect() if changes else []
    found = {row.territory: tuple(row.currencies) for row in rows}
    kinds = {currency for each in found.values() for currency in each}
    agrees = len(rows) == len(found) and found == (tender_on(day) if day else {})
    return TenderReport(written, commits, len(found), len(kinds), day, agrees)
