"""The settings that a broker of sparklog's is to be started with, in place of one of Kafka's."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sparklog.config.broker import parse_broker_config
from sparklog.config.properties import load_properties
from sparklog.config.protocol_version import ProtocolVersion, parse_protocol_version
from sparklog.errors import ConfigError


class Planned(NamedTuple):
    """A settings file; ``fault`` says why no broker starts with it."""

    source: str
    broker_id: int = -1
    version: ProtocolVersion | None = None
    """``inter.broker.protocol.version`` in force: sparklog's own default where the file does not say it."""
    fault: str = ""


def read_planned(path: Path) -> Planned:
    """What the file would make of a broker."""
    try:
        config = parse_broker_config(load_properties(path))
    except ConfigError as error:
        return Planned(str(path), fault=str(error))
    version = parse_protocol_version(config.inter_broker_protocol_version)
    return Planned(str(path), config.broker_id, version)
