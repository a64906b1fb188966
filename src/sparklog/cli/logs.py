"""Where a broker's log lines go: to standard error, as text or as JSON, or where a TOML file says.

The file is what ``logging.config.dictConfig`` takes. Loggers have the names of modules: what compaction says comes from
``sparklog.replica.cleaning``. A message is one line, whatever names of clients are in it: what cannot be printed is
written as Python writes it, so that nobody makes up lines, or speaks to a terminal. As JSON a traceback is in the same
line; as text it follows in lines of its own.
"""

from __future__ import annotations

import json
import logging
import logging.config
import tomllib
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from sparklog.cli.display import printable
from sparklog.errors import ConfigError

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s  %(message)s"


class LogFormat(StrEnum):
    """What a line of the log looks like."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """A record is one line with one JSON object, in ASCII.

    ``time`` (RFC 3339, UTC, to the millisecond), ``level``, ``logger``, ``message``, of a broker with an id ``broker``,
    and of what failed ``exception``: the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {
            "time": time.removesuffix("+00:00") + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        broker = getattr(record, "broker", None)
        if broker is not None:
            said["broker"] = broker
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)


class _OneLine(logging.LogRecord):
    broker: int | None = None

    def getMessage(self) -> str:  # noqa: N802 (it is logging's name)
        return printable(super().getMessage())


def begin_to_log(settings: Path | None, log_format: LogFormat | None = None, broker: int | None = None) -> None:
    """Begin, as ``settings`` (TOML) or else ``log_format`` say; ``broker`` is the id that lines in JSON name.

    Raises ConfigError for a file that is none of that kind, and for both at once.
    """
    if settings is not None and log_format is not None:
        raise ConfigError(
            f"{settings} says itself how lines look: leave out --log-format (SPARKLOG_LOG_FORMAT), or --logging"
            f' (SPARKLOG_LOGGING); in the file a formatter with "()" = "{__name__}.JsonLines" writes JSON'
        )
    wanted = None if settings is None else _read(settings)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    logging.setLogRecordFactory(type("_OfBroker", (_OneLine,), {"broker": broker}))
    if wanted is None:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else logging.Formatter(_FORMAT))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
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
