"""What the settings of a schema registry are called: as Kafka's serializers call them.

A module that only looks for their names among others need not import what they mean.
"""

from __future__ import annotations

PREFIX = "schema.registry."
_BARE = ("basic.auth.", "bearer.auth.")
"""Settings that Kafka's serializers take without the prefix too."""


def is_of_registry(name: str) -> bool:
    """Whether a setting of this name is a registry's."""
    return full_name(name).startswith(PREFIX)


def full_name(name: str) -> str:
    """The name with its prefix."""
    return f"{PREFIX}{name}" if name.startswith(_BARE) else name
