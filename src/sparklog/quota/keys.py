"""The settings that hold quotas (``QuotaConfig.java``): their names, and which values they take."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, isnan
from typing import Final, NamedTuple

from sparklog.errors import ConfigError
from sparklog.quota.entity import Entity, IpEntity

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_TOLERANCE = 1e-6
_SHOWN = 40
"""Characters of what is stored."""
_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1


def json_value(value: float) -> float | None:
    """A quota's value, None for one without an end: Kafka's tools store Infinity, which JSON has no word for."""
    return value if isfinite(value) else None


class Key(NamedTuple):
    """One setting."""

    help: str
    most: int | None
    """The greatest value where it is a whole number; None for any number."""

    def text(self, value: float) -> str:
        """As it is stored. Raises ConfigError for what is no value of the setting."""
        if not isfinite(value) or value < 0:
            raise ConfigError(f"{value} is no quota: it is a number from 0 on")
        if self.most is None:
            return repr(float(value))
        whole = int(value + _TOLERANCE)
        if abs(whole - value) > _TOLERANCE or whole > self.most:
            raise ConfigError(f"{value} must be a whole number, {self.most} at most")
        return str(whole)

    def value(self, text: str) -> float:
        """From what is stored. Raises ConfigError for what is no number, or is too large."""
        try:
            value = float(text) if self.most is None else int(text)
        except ValueError as error:
            raise ConfigError(f"{text[:_SHOWN]!r} is no number") from error
        if isinstance(value, float) and isnan(value):
            raise ConfigError(f"{text!r} is no number")
        if self.most is not None and value > self.most:
            raise ConfigError(f"{text[:_SHOWN]!r} is more than {self.most}")
        return value


CLIENT_KEYS: Final[Mapping[str, Key]] = {
    PRODUCER_BYTE_RATE: Key("bytes a second that are produced", _MAX_INT64),
    CONSUMER_BYTE_RATE: Key("bytes a second that are consumed", _MAX_INT64),
    REQUEST_PERCENTAGE: Key("percent of the broker's time; 100 is all of it", None),
    CONTROLLER_MUTATION_RATE: Key("partitions a second that are made or deleted", None),
}
IP_KEYS: Final[Mapping[str, Key]] = {CONNECTION_CREATION_RATE: Key("new connections a second", _MAX_INT32)}


def keys_of(entity: Entity | IpEntity) -> Mapping[str, Key]:
    """The settings that there are for it."""
    return IP_KEYS if isinstance(entity, IpEntity) else CLIENT_KEYS


def quotas_in(entity: Entity | IpEntity, properties: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the entity's settings, by their names. Raises ConfigError for a value that is no number."""
    found = {}
    for name, key in keys_of(entity).items():
        if name in properties:
            try:
                found[name] = key.value(properties[name])
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from error
    return found
