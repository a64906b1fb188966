"""Answers as plain values in which only what must be equal differs.

What is replaced: identities that a broker chooses (producer ids, member ids), each by a name that counts them in the
order in which this broker first spoke of them, or, where they are never used again, by what they are; times of the wall
clock. Of texts for people it counts whether there is one, an empty one or null: the wording is each broker's own.
Arrays of structures become mappings by their natural key, because Kafka leaves their order open. Records become what
they say, batch by batch. Of message sets the first messages count: Kafka gives as many as there is room for in the
bytes that their batches have, sparklog in those that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sparklog.clock import SystemClock
from sparklog.errors import CorruptRecord, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.record import layout
from sparklog.record.legacy.message import LOG_APPEND_TIME, LegacyMessage
from sparklog.record.legacy.message_set import iter_messages, unwrap
from sparklog.record.records import iter_batches, iter_records

ABSENT = "<absent>"
_ENTRIES = 3
_STARTED = SystemClock().now_ms()
"""Records of the sequences are older, or far in the future; markers are not."""
_CODES = frozenset(code.value for code in ErrorCode)
IDENTITIES = {
    "producer_id": "producer",
    "member_id": "member",
}
CHOSEN = frozenset({"topic_id", "cluster_id", "port", "log_dir"})
_NOBODY = (-1, "", None, "00000000-0000-0000-0000-000000000000")
WALL_CLOCK = frozenset({"log_append_time_ms", "transaction_start_time_ms", "last_timestamp"})
WORDED = frozenset({"error_message", "batch_index_error_message", "documentation"})
DISK = frozenset({"total_bytes", "usable_bytes"})
_KEYS = (
    ("resource_type", "resource_name"),
    ("transactional_id",),
    ("group_id",),
    ("member_id",),
    ("producer_id", "producer_epoch"),
    ("name",),
    ("topic",),
    ("topic_name",),
    ("partition_index",),
    ("partition",),
    ("partition_id",),
    ("index",),
    ("node_id",),
    ("broker_id",),
    ("api_key",),
    ("key",),
    ("user",),
)


class Names:
    """What one broker's identities are called; ``prefix`` is left out of all texts, so that runs can be compared."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._known: dict[tuple[str, Any], str] = {}

    def normal(self, api: ApiKey, answer: Any) -> Any:
        """The comparable form of one answer."""
        if isinstance(answer, str):
            return {"": answer}
        found = answer.to_dict(json=False)
        if api is ApiKey.JOIN_GROUP:
            self._name("member", found["member_id"])
            found["leader"] = self._name("member", found["leader"])
        if api is ApiKey.API_VERSIONS:
            for name in ("api_keys", "supported_features", "finalized_features"):
                found.pop(name, None)  # test_offered.py
        return self._value("", found)

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return self._array(field, value)
        if field == "records":
            return self._records(value)
        if field in IDENTITIES:
            return self._name(IDENTITIES[field], value)
        if field == "error_code" or field.endswith("_error_code"):
            return ErrorCode(value).name if value in _CODES else f"code {value}"
        if (field in WALL_CLOCK and value >= 0) or (field == "timestamp" and value > _STARTED):
            return "some time"
        if field in WORDED:
            return "some text" if value else value
        if field in DISK:
            return "some bytes" if value >= 0 else value
        if field in CHOSEN:
            return value if value is None else "none" if value in _NOBODY or str(value) in _NOBODY else f"some {field}"
        return value.replace(self._prefix, "") if isinstance(value, str) and self._prefix else value

    def _array(self, field: str, values: list[Any]) -> Any:
        if not values or not isinstance(values[0], dict):
            return sorted(values) if field == "partitions" else [self._value(field, each) for each in values]
        found = [self._value(field, each) for each in values]
        for key in _KEYS:
            if all(each in found[0] for each in key):
                keyed = {".".join(str(value[each]) for each in key): value for value in found}
                if len(keyed) == len(found):
                    return keyed
        return {str(number): value for number, value in enumerate(found)}

    def _name(self, kind: str, value: Any) -> Any:
        if value in _NOBODY or str(value) in _NOBODY:
            return None if value is None else "nobody"
        number = sum(known == kind for known, _ in self._known)
        return self._known.setdefault((kind, value), f"{kind} {number + 1}")

    def _records(self, data: bytes | None) -> Any:
        if not data:
            return []
        if len(data) <= layout.MAGIC or data[layout.MAGIC] < layout.MAGIC_V2:
            return [_entry(each) for each in islice(iter_messages(data), _ENTRIES)]
        try:
            return [self._batch(batch) for batch in iter_batches(data)]
        except CorruptRecord:
            return f"{len(data)} bytes of another format"

    def _batch(self, batch: Any) -> Any:
        producer = self._name("producer", batch.producer_id)
        head = f"offsets {batch.base_offset} to {batch.last_offset}, epoch {batch.partition_leader_epoch}"
        who = f"{producer} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        records = [
            (each.offset, None if batch.is_control or batch.timestamp_type else each.timestamp, each.key, each.value)
            for each in iter_records(batch)
        ]
        return f"{head}, attributes {batch.attributes:#x}, {who}, {records}"


def _entry(entry: LegacyMessage) -> Any:
    """An entry of a message set, with what is in it. How a wrapper is compressed is each broker's own."""
    entry.validate()
    head = f"offset {entry.offset}, magic {entry.magic}, attributes {entry.attributes:#x}"
    times = [None if each.timestamp_type == LOG_APPEND_TIME else each.timestamp for each in (entry, *unwrap(entry))]
    return f"{head}, {times}, {[each.record()._replace(timestamp=0) for each in unwrap(entry)]}"


def compare(kafka: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where the two differ: its path, and what stands there on either side."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*kafka, *ours]):
            inner = f"{path}.{key}" if path else str(key)
            yield from compare(kafka.get(key, ABSENT), ours.get(key, ABSENT), inner)
    elif kafka != ours:
        yield path, kafka, ours
