"""The settings of a client that a command or a job is started with.

A file of properties, as Kafka's tools take it with ``--command-config``, or else the one that SPARKLOG_COMMAND_CONFIG
names. So no secret is an argument of a process. Brokers that are named to the command count before those in the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sparklog.config.properties import load_properties

ENVIRONMENT: Final = "SPARKLOG_COMMAND_CONFIG"
BROKERS: Final = "SPARKLOG_BOOTSTRAP"
"""The environment's variable that names brokers."""
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_BOOTSTRAP: Final = "bootstrap.servers"


def command_settings(path: Path | None, bootstrap_servers: str | None) -> dict[str, str]:
    """By Kafka's names, ``bootstrap.servers`` always among them; None for what was not said.

    Raises ConfigError for a file that cannot be read.
    """
    named = path or _in_environment()
    settings = {_BOOTSTRAP: DEFAULT_BOOTSTRAP, **({} if named is None else load_properties(named))}
    return settings if bootstrap_servers is None else {**settings, _BOOTSTRAP: bootstrap_servers}


def _in_environment() -> Path | None:
    told = os.environ.get(ENVIRONMENT)
    return Path(told) if told else None
