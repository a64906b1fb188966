"""Where a broker's log lines go: to standard error, or where a TOML file says.

The file is what ``logging.config.dictConfig`` takes. Loggers have the names of modules: what compaction says comes from
``sparklog.replica.cleaning``. A message is one line, whatever names of clients are in it: what cannot be printed is
written as Python writes it, so that nobody makes up lines, or speaks to a terminal.
"""

from __future__ import annotations

import logging
import logging.config
import tomllib
from pathlib import Path
from typing import Any

from sparklog.errors import ConfigError

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s  %(message)s"


class _OneLine(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802 (it is logging's name)
        message = super().getMessage()
        if message.isprintable():
            return message
        return "".join(each if each.isprintable() else repr(each)[1:-1] for each in message)


def begin_to_log(settings: Path | None) -> None:
    """Raises ConfigError for a file that is none of that kind."""
    wanted = None if settings is None else _read(settings)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    logging.setLogRecordFactory(_OneLine)
    if wanted is None:
        logging.basicConfig(level=logging.INFO, format=_FORMAT)
        return
    try:
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False} | wanted)
    except (ValueError, TypeError, AttributeError, ImportError, OSError) as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise ConfigError(f"{settings}: {error}{cause}") from error


def _read(settings: Path) -> dict[str, Any]:
    try:
        with settings.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {settings}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{settings} is not TOML: {error}") from error
