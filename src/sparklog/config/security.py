"""The settings of TLS and SASL of a broker: ``ssl.*`` and ``sasl.*``, for all listeners or for one of them.

``listener.name.NAME.ssl.…`` stands before ``ssl.…`` for the listener NAME, and ``listener.name.NAME.MECHANISM.sasl.…``
for one mechanism there (Kafka 3.9, ``AbstractConfig.valuesWithPrefixOverride``, ``ChannelBuilders``). What they mean is
read where they are used (``sparklog.security``): many are known to one protocol, mechanism or file type alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

_OF_A_LISTENER = "listener.name."
_PREFIXES = ("ssl.", "sasl.", _OF_A_LISTENER)
_OTHERS = frozenset({"connection.failed.authentication.delay.ms", "connections.max.reauth.ms"})


@dataclass(frozen=True)
class SecuritySettings:
    """Texts by Kafka's names. They hold passwords, so they are never shown."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def divide(cls, properties: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Those among a broker's settings, and the others."""
        own = {name: text for name, text in properties.items() if name.startswith(_PREFIXES) or name in _OTHERS}
        return cls(own), {name: text for name, text in properties.items() if name not in own}

    def of_listener(self, name: str) -> dict[str, str]:
        """Those in force for a listener; what is said of a mechanism there is ``MECHANISM.sasl.…`` in small letters."""
        prefix = f"{_OF_A_LISTENER}{name.lower()}."
        general = {key: text for key, text in self.properties.items() if not key.startswith(_OF_A_LISTENER)}
        return general | {
            key.removeprefix(prefix): text for key, text in self.properties.items() if key.startswith(prefix)
        }
