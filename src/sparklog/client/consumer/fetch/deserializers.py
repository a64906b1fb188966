"""What a consumer's user wants keys and values to be made into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.errors import DeserializationError

Deserializer = Callable[[bytes], Any]


class Deserializers(NamedTuple):
    """One for keys and one for values; without one they stay bytes. Null stays None."""

    key: Deserializer | None = None
    value: Deserializer | None = None

    def check(self) -> None:
        """Raises TypeError for what is no function."""
        check_callable("key_deserializer", self.key)
        check_callable("value_deserializer", self.value)

    def applied(self, records: list[ConsumerRecord]) -> tuple[list[ConsumerRecord], DeserializationError | None]:
        """The records up to the first that cannot be read, and why it cannot."""
        if self.key is None and self.value is None:
            return records, None
        read: list[ConsumerRecord] = []
        for record in records:
            try:
                key, value = _applied(self.key, record.key), _applied(self.value, record.value)
            except Exception as error:
                failure = DeserializationError(record.tp, record.offset, error)
                failure.__cause__ = error
                return read, failure
            read.append(record._replace(key=key, value=value))
        return read, None


BYTES = Deserializers()
"""Keys and values stay what they are."""


def _applied(deserializer: Deserializer | None, data: bytes | None) -> Any:
    return data if deserializer is None or data is None else deserializer(data)
