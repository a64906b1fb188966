"""The options of a query as Spark hands them over: text under lower-case keys."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ConfigError, DataSourceError
from sparklog.record.layout import MAX_INT64

_log = logging.getLogger(__name__)
T = TypeVar("T")

_NAMES = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "directRead",
    "directReadMapping",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "commitToGroup",
    "topic",
    "delivery",
    "txnAppId",
    "txnVersion",
    "abandonedAfter",
    "checkpointLocation",
    "path",
)


class RawOptions:
    """Text by option name, looked up without regard to case; each getter refuses what is not of its type."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {key.lower(): value for key, value in options.items()}

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def kafka(self) -> dict[str, str]:
        """The client's settings: what starts with ``kafka.``, without that."""
        return {key[len("kafka.") :]: value for key, value in self._options.items() if key.startswith("kafka.")}

    def integer(self, name: str, *, least: int, most: int = MAX_INT64, default: int | None = None) -> int | None:
        text = self.get(name)
        if text is None:
            return default
        value = parsed(name, text, int, "a whole number")
        if value < least:
            raise invalid(name, text, f"it must be at least {least}")
        if value > most:
            raise invalid(name, text, f"it must be at most {most}")
        return value

    def size(self, name: str) -> int | None:
        """Bytes as Spark writes them; a bare number is bytes."""
        text = self.get(name)
        if text is None:
            return None
        match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower(), re.ASCII)
        if match is None or int(match[1]) == 0:
            raise invalid(name, text, "write it like 1048576, 512k, 64m or 1g")
        return int(match[1]) << _SHIFTS[match[2]]

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.word(name, *(("true", "false") if default else ("false", "true"))) == "true"

    def word(self, name: str, default: str, *others: str) -> str:
        """One of these words, in any case."""
        text = self.get(name)
        word = default if text is None else text.strip().lower()
        if word not in (default, *others):
            raise invalid(name, text or "", f"it must be {' or '.join((default, *others))}")
        return word

    def duration_ms(self, name: str, default: int) -> int:
        """Spark's time strings; a bare number is milliseconds."""
        text = self.get(name)
        if text is None:
            return default
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise invalid(name, text, "write it like 500ms, 30s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2]]

    def warn_of_unknown(self) -> None:
        """Log the names that look like misspelled ones; others may be another layer's."""
        known = {name.lower(): name for name in _NAMES}
        for key in sorted(self._options.keys() - known.keys()):
            near = difflib.get_close_matches(key, known, n=1)
            if not key.startswith("kafka.") and near:
                _log.warning("option '%s' is not known; did you mean '%s'?", key, known[near[0]])


_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def parsed(name: str, text: str, parse: Callable[[str], T], what: str) -> T:
    """``text`` through ``parse``; a ValueError becomes a refusal that says ``what`` it must be."""
    try:
        return parse(text.strip())
    except ValueError:
        raise invalid(name, text, f"it must be {what}") from None


def invalid(name: str, value: str, reason: str) -> DataSourceError:
    """A value that the option cannot have."""
    return DataSourceError("SPARKLOG_INVALID_OPTION", f"option '{name}' cannot be {value!r}: {reason}")


def unsupported(name: str, advice: str) -> DataSourceError:
    """An option that cannot be given here at all."""
    return DataSourceError("SPARKLOG_UNSUPPORTED_OPTION", f"option '{name}' is not supported: {advice}")


def client_config(given: RawOptions, refused: Mapping[str, str], also: Collection[str] = ()) -> ClientConfig:
    """The client's settings; those of ``also`` are somebody else's."""
    properties = {name: text for name, text in given.kafka().items() if name not in also}
    for name, advice in refused.items():
        if name in properties:
            raise unsupported(f"kafka.{name}", advice)
    if not properties.get("bootstrap.servers", "").strip():
        raise DataSourceError(
            "SPARKLOG_MISSING_OPTION", "option 'kafka.bootstrap.servers' is required: host:port,host:port"
        )
    timeout = given.integer("kafkaConsumer.pollTimeoutMs", least=1)
    if timeout is not None:
        properties.setdefault("default.api.timeout.ms", str(timeout))
    try:
        return ClientConfig.from_properties(properties)
    except ConfigError as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"option kafka.{error}") from error
