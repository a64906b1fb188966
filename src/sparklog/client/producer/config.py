"""The settings of a producer, by Kafka's names, and what of them does not go together."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from sparklog.client.cluster.config import ClientConfig, as_properties
from sparklog.config.definition import ConfigType, at_least, between, setting
from sparklog.errors import ConfigError

_log = logging.getLogger(__name__)
_MAX_INT = 2**31 - 1
MOST_IN_FLIGHT = 5
"""Batches of a partition whose fate brokers remember for an idempotent producer."""
_TIMEOUT, _TWO_PHASE = "transaction.timeout.ms", "transaction.two.phase.commit.enable"


@dataclasses.dataclass(frozen=True)
class ProducerConfig(ClientConfig):
    """What a producer is told besides. Sizes are bytes, times milliseconds.

    Idempotence is on unless a setting rules it out: ``acks`` other than all, ``retries`` of 0, or more than five
    requests in flight. Asked for together with one of those it is a ConfigError.
    """

    batch_size: int = setting(
        "batch.size", ConfigType.INT, 128 << 10, "Bytes of records, uncompressed, that a batch aims at.", at_least(1)
    )
    linger_ms: int = setting(
        "linger.ms", ConfigType.INT, 5, "How long a batch that is not full waits for more records.", at_least(0)
    )
    buffer_memory: int = setting(
        "buffer.memory", ConfigType.LONG, 32 << 20, "Most bytes of records not yet acknowledged.", at_least(1)
    )
    max_block_ms: int = setting(
        "max.block.ms", ConfigType.INT, 60_000, "Longest that send, and each call of transactions, waits.", at_least(0)
    )
    retries: int = setting("retries", ConfigType.INT, _MAX_INT, "How often a batch is sent again.", at_least(0))
    enable_idempotence: bool = setting(
        "enable.idempotence", ConfigType.BOOLEAN, True, "Whether what is sent again is written once, and in order."
    )
    transactional_id: str = setting(
        "transactional.id", ConfigType.STRING, "", "The name under which transactions are made; empty for none."
    )
    transaction_timeout_ms: int = setting(
        _TIMEOUT, ConfigType.INT, 60_000, "How long a transaction may stay open.", between(1, _MAX_INT)
    )
    two_phase_commit: bool = setting(
        _TWO_PHASE, ConfigType.BOOLEAN, False, "Whether another system decides on prepared transactions."
    )

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None = None, **more: Any) -> ProducerConfig:
        """From Kafka's names, with dots or (as keywords) with underscores; values as text or as they are."""
        given = as_properties(settings, more)
        config = cls.from_properties(given)
        return config._settled(frozenset(given))

    @property
    def is_transactional(self) -> bool:
        return bool(self.transactional_id)

    def _settled(self, given: frozenset[str]) -> ProducerConfig:
        """With what follows from what was ``given``. Raises ConfigError where it contradicts itself."""
        config = self._settle_idempotence(given)
        if config.two_phase_commit and not config.is_transactional:
            raise ConfigError(f"{_TWO_PHASE} is for transactions; set transactional.id too")
        if config.two_phase_commit and _TIMEOUT in given:
            raise ConfigError(f"a prepared transaction stays open until it is decided; remove {_TIMEOUT}")
        least = config.linger_ms + config.request_timeout_ms
        if config.delivery_timeout_ms < least:
            if "delivery.timeout.ms" in given:
                raise ConfigError(
                    f"delivery.timeout.ms={config.delivery_timeout_ms} leaves no time for one request: make it at"
                    f" least linger.ms + request.timeout.ms, that is {least}, or lower request.timeout.ms"
                )
            config = dataclasses.replace(config, delivery_timeout_ms=least)
        return config

    def _settle_idempotence(self, given: frozenset[str]) -> ProducerConfig:
        asked = "enable.idempotence" in given
        if not self.enable_idempotence:
            if self.is_transactional:
                raise ConfigError("transactional.id needs enable.idempotence=true; remove one of them")
            return self
        obstacle = self._obstacle_to_idempotence()
        if obstacle is None:
            return self
        if asked or self.is_transactional:
            who = "enable.idempotence=true" if asked else "transactional.id"
            raise ConfigError(f"{who} needs {obstacle}")
        _log.info("idempotence is off: it needs %s", obstacle)
        return dataclasses.replace(self, enable_idempotence=False)

    def _obstacle_to_idempotence(self) -> str | None:
        if self.required_acks != -1:
            return f"acks=all, not {self.acks}"
        if self.retries == 0:
            return "retries of more than 0"
        if self.max_in_flight > MOST_IN_FLIGHT:
            return f"max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT}, not {self.max_in_flight}"
        return None
