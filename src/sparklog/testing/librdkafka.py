"""The settings of a client of Kafka's, by the names that librdkafka has for them."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.security.sasl.jaas import option, parse_jaas

_JAAS = "sasl.jaas.config"
_NAMES = {"ssl.truststore.location": "ssl.ca.location"}
_UNKNOWN = ("ssl.truststore.type", _JAAS)


def librdkafka_settings(client: Mapping[str, str]) -> dict[str, str]:
    """For PEM, and mechanisms with a user and a password."""
    found = {_NAMES.get(name, name): value for name, value in client.items() if name not in _UNKNOWN}
    if _JAAS in client:
        (module,) = parse_jaas(client[_JAAS])
        for name in ("username", "password"):
            found[f"sasl.{name}"] = option(module.options, name, client["sasl.mechanism"])
    return found
