"""Settings of topics and brokers as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sparklog.client.admin.configs import ConfigEntry

_SOURCES: Final = {
    1: "this topic",
    2: "this broker, while it runs",
    3: "all brokers, while they run",
    4: "the broker's file",
    5: "default",
    6: "this broker's loggers",
}
"""Kafka's ``ConfigSource`` in words."""


def entries(found: Iterable[ConfigEntry]) -> list[dict[str, Any]]:
    """With the source of each; a value that the broker calls sensitive is left out, whatever the broker sends."""
    return [
        {
            "name": each.name,
            "value": None if each.sensitive else each.value,
            "source": _SOURCES.get(each.source, "unknown"),
            "is_default": each.source == 5,
            "read_only": each.read_only,
            "sensitive": each.sensitive,
        }
        for each in found
    ]
