"""What the broker's settings allow its clients."""

from __future__ import annotations

from sparklog.config.broker import BrokerConfig, parse_overrides
from sparklog.net.limits import Limits, by_address


def limits_of(config: BrokerConfig) -> Limits:
    """Raises ConfigError if a host is named that nobody knows."""
    return Limits(
        max_request_size=config.socket_request_max_bytes,
        max_in_flight=config.queued_max_requests,
        max_request_memory=config.queued_max_request_bytes,
        max_connections=config.max_connections,
        max_per_host=config.max_connections_per_ip,
        per_host_overrides=by_address(parse_overrides(config.max_connections_per_ip_overrides)),
        max_rate=config.max_connection_creation_rate,
        max_idle_s=config.connections_max_idle_ms / 1000,
    )
