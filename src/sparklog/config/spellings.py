"""Kafka's older names of a broker's settings, and what is meant by each."""

from __future__ import annotations

from sparklog.config.definition import ConfigType, Definition

COARSER_TIMES = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
}
"""Names of a time in a larger unit, which count where the one in milliseconds is not given; the first wins."""

_TOKEN_KEY, _OLD_TOKEN_KEY = "delegation.token.secret.key", "delegation.token.master.key"

DEPRECATED = {
    name: f"set {key} of the default client id instead, as with 'sparklog quota set --client-id-default {key}=N'"
    for name, key in (
        ("quota.producer.default", "producer_byte_rate"),
        ("quota.consumer.default", "consumer_byte_rate"),
    )
} | {_OLD_TOKEN_KEY: f"write {_TOKEN_KEY}"}
"""What is taken as it was meant, and what to write instead."""


def by_one_name(properties: dict[str, str]) -> dict[str, str]:
    """The same settings, each by one name only. Raises ConfigError for a time that is no number."""
    refined = dict(properties)
    for name, spellings in COARSER_TIMES.items():
        for coarse, unit in spellings:
            text = refined.pop(coarse, None)
            if text is not None and name not in refined:
                amount = Definition(coarse, ConfigType.INT, 0, "").parse(text)
                refined[name] = str(amount * unit if amount >= 0 else -1)
    only_dir = refined.pop("log.dir", None)
    if only_dir is not None:
        refined.setdefault("log.dirs", only_dir)
    old_key = refined.pop(_OLD_TOKEN_KEY, None)
    if old_key is not None:
        refined.setdefault(_TOKEN_KEY, old_key)
    return refined
