"""The options of writing with ``format("sparklog")``, checked against one another.

``spark/options/table.py`` defines each. Every refusal is a DataSourceError that names the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.producer.config import MOST_IN_FLIGHT
from sparklog.errors import DataSourceError
from sparklog.spark.options import table
from sparklog.spark.options.definition import Use, invalid, option_field
from sparklog.spark.options.raw import RawOptions, client_config

BY_COLUMN = "*"
"""The target of a sink whose rows choose their topics by a column. No topic has this name."""


@dataclass(frozen=True)
class WriteOptions:
    """The options of one write. Times are milliseconds.

    ``txn_app_id`` and ``txn_version`` name a batch write; each version of a name is written once. Only clusters without
    two-phase commit obey ``transaction_timeout_ms``. A batch write finishes those without a name that have begun no
    task for ``abandoned_after_ms``; 0: it finishes none. ``idempotence`` is None where the settings decide whether
    batches are numbered.
    """

    client: ClientConfig
    topic: str | None = option_field(table.TOPIC)
    exactly_once: bool = option_field(table.DELIVERY)
    txn_app_id: str | None = option_field(table.TXN_APP_ID)
    txn_version: int | None = option_field(table.TXN_VERSION)
    transaction_timeout_ms: int = option_field(table.TRANSACTION_TIMEOUT_MS)
    checkpoint: str | None = option_field(table.CHECKPOINT_LOCATION)
    abandoned_after_ms: int = option_field(table.ABANDONED_AFTER)
    idempotence: bool | None = option_field(table.IDEMPOTENCE)
    task_token_ms: int | None = option_field(table.TASK_TOKEN)
    """How long the token lasts by which tasks come; None where they come as the driver does."""

    @property
    def name(self) -> str | None:
        """The name of a batch write; writes to different topics under one ``txnAppId`` have different names."""
        if self.txn_app_id is None or self.topic is None:
            return self.txn_app_id
        return f"{self.txn_app_id}@{self.topic}"

    @property
    def target(self) -> str:
        """The topic of all rows, or BY_COLUMN."""
        return self.topic or BY_COLUMN

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> WriteOptions:
        """Of ``df.write``. Raises DataSourceError."""
        return cls._from(RawOptions(options), Use.BATCH_WRITE)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> WriteOptions:
        """Of ``df.writeStream``. Raises DataSourceError for the name of a batch write, too."""
        raw = RawOptions(options)
        raw.refuse_elsewhere(Use.STREAM_WRITE)
        return cls._from(raw, Use.STREAM_WRITE)

    @classmethod
    def _from(cls, raw: RawOptions, use: Use) -> WriteOptions:
        exactly_once, app_id = raw.value(table.DELIVERY), raw.value(table.TXN_APP_ID)
        version = raw.value(table.TXN_VERSION)
        _check_name(app_id, raw.value(table.TOPIC))
        if (app_id is None) != (version is None):
            raise DataSourceError(
                "SPARKLOG_CONFLICTING_OPTIONS", "options 'txnAppId' and 'txnVersion' name a write together: give both"
            )
        if app_id is not None and not exactly_once:
            raise DataSourceError(
                "SPARKLOG_CONFLICTING_OPTIONS", "option 'txnAppId' is for delivery=exactly-once: leave one of them out"
            )
        raw.warn_of_unknown()
        client = client_config(raw, use, also=(table.TRANSACTION_TIMEOUT_MS, table.IDEMPOTENCE))
        if exactly_once and client.required_acks != -1:
            raise invalid("kafka.acks", client.acks, "delivery=exactly-once needs all; or set delivery=at-least-once")
        _check_idempotence(raw.value(table.IDEMPOTENCE), client, exactly_once=exactly_once)
        return cls(client=client, **raw.fields_of(cls))


def _check_idempotence(asked: bool | None, client: ClientConfig, *, exactly_once: bool) -> None:
    """Raises DataSourceError for what the write cannot honour."""
    if exactly_once and asked is False:
        raise invalid(
            table.IDEMPOTENCE.name,
            "false",
            "delivery=exactly-once numbers every batch; remove the option, or set delivery=at-least-once",
        )
    if asked and client.required_acks != -1:
        raise invalid(table.IDEMPOTENCE.name, "true", f"it needs kafka.acks=all, not {client.acks}")
    if asked and client.max_in_flight > MOST_IN_FLIGHT:
        raise invalid(
            table.IDEMPOTENCE.name,
            "true",
            f"it needs kafka.max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT},"
            f" not {client.max_in_flight}",
        )


_LONGEST_NAME = 1000
"""Bytes. The name is part of transactional ids, percent-encoded, which have 32,767 bytes at most."""


def _check_name(app_id: str | None, topic: str | None) -> None:
    """Raises DataSourceError for a name that equals another one with its topic, or is too long for an id."""
    if app_id is not None and "@" in app_id and not topic:
        raise invalid("txnAppId", app_id, "'@' parts a name from its topic: leave it out, or give option 'topic'")
    if app_id is not None and len(app_id.encode()) > _LONGEST_NAME:
        raise invalid("txnAppId", f"{app_id[:20]}...", f"it takes {_LONGEST_NAME} bytes of UTF-8 at most")
