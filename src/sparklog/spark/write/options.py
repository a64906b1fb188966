"""The options of writing with ``format("sparklog")``: those of Spark's Kafka sink, and of writing exactly once.

Every refusal is a DataSourceError that names the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import DataSourceError
from sparklog.spark.raw_options import RawOptions, client_config, invalid

_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
_LONGEST_MS = 2**31 - 1
_REFUSED_WRITING = {
    "transactional.id": "each task has one of its own; name a batch write with 'txnAppId' and 'txnVersion'",
    "key.serializer": "keys are written as binary; encode them in Spark",
    "value.serializer": "values are written as binary; encode them in Spark",
}


@dataclass(frozen=True)
class WriteOptions:
    """What a write was asked to do; ``topic`` goes before the column of that name.

    ``txn_app_id`` and ``txn_version`` name a batch write, so that it is written once however often it is asked for;
    ``transaction_timeout_ms`` is for clusters that know no two-phase commit. A batch write ends those without a
    name that have begun no task for ``abandoned_after_ms``; 0 is never.
    """

    client: ClientConfig
    topic: str | None
    exactly_once: bool = True
    txn_app_id: str | None = None
    txn_version: int = 0
    transaction_timeout_ms: int = 900_000
    checkpoint: str | None = None
    abandoned_after_ms: int = 24 * 3_600_000

    @property
    def name(self) -> str | None:
        """What a named batch write is known by: one ``txnAppId`` may write several topics, once in each."""
        if self.txn_app_id is None or self.topic is None:
            return self.txn_app_id
        return f"{self.txn_app_id}@{self.topic}"

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> WriteOptions:
        given = RawOptions(options)
        topic = (given.get("topic") or "").strip()
        exactly_once = given.word("delivery", "exactly-once", "at-least-once") == "exactly-once"
        app_id = (given.get("txnAppId") or "").strip() or None
        version = given.integer("txnVersion", least=0)
        _check_name(app_id, topic)
        if (app_id is None) != (version is None):
            raise DataSourceError(
                "SPARKLOG_CONFLICTING_OPTIONS", "options 'txnAppId' and 'txnVersion' name a write together: give both"
            )
        if app_id is not None and not exactly_once:
            raise DataSourceError(
                "SPARKLOG_CONFLICTING_OPTIONS", "option 'txnAppId' is for delivery=exactly-once: leave one of them out"
            )
        given.warn_of_unknown()
        client = client_config(given, _REFUSED_WRITING, also=(_TRANSACTION_TIMEOUT,))
        if exactly_once and client.required_acks != -1:
            raise invalid("kafka.acks", client.acks, "delivery=exactly-once needs all; or set delivery=at-least-once")
        timeout = given.integer(
            f"kafka.{_TRANSACTION_TIMEOUT}", least=1, most=_LONGEST_MS, default=cls.transaction_timeout_ms
        )
        return cls(
            client=client,
            topic=topic or None,
            exactly_once=exactly_once,
            txn_app_id=app_id,
            txn_version=version or 0,
            transaction_timeout_ms=timeout or cls.transaction_timeout_ms,
            checkpoint=given.get("checkpointLocation"),
            abandoned_after_ms=given.duration_ms("abandonedAfter", cls.abandoned_after_ms),
        )


_LONGEST_NAME = 1000
"""It is part of transactional ids, percent-encoded, which have 32,767 bytes at most."""


def _check_name(app_id: str | None, topic: str) -> None:
    """Raises DataSourceError for a name that would be taken for another one with a topic, or is too long for an id."""
    if app_id is not None and "@" in app_id and not topic:
        raise invalid("txnAppId", app_id, "'@' parts a name from its topic: leave it out, or give option 'topic'")
    if app_id is not None and len(app_id.encode()) > _LONGEST_NAME:
        raise invalid("txnAppId", f"{app_id[:20]}...", f"it takes {_LONGEST_NAME} bytes of UTF-8 at most")
