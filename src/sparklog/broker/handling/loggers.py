"""The levels of this process's loggers, which are settings of Kafka's resource type BROKER_LOGGER.

Source: KIP-412; what is refused, and by which code, is what Kafka 3.9's ``RuntimeLoggerManager`` does.

Invariants: a level is of this run of the broker, and is kept nowhere; no request makes a logger; a request of which one
change is refused changes nothing.

Loggers have the names of modules here. The packages above them count as loggers too, so that one change is of all of a
package's modules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from sparklog.config.dynamic import Change, Operation
from sparklog.errors import ApiError, ErrorCode

ROOT: Final = "root"
_LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's names, and Python's numbers."""

_logger = logging.getLogger(__name__)


def levels() -> dict[str, str]:
    """The level that is in force for each logger, by name."""
    return {name: _level_of(name) for name in (ROOT, *sorted(logging.root.manager.loggerDict))}


def change_levels(changes: Iterable[Change], *, validate_only: bool) -> None:
    """Set levels, or with DELETE take them back so that the logger above decides. Raises ApiError."""
    wanted = [(each.name, _checked(each)) for each in changes]
    for name, level in [] if validate_only else wanted:
        before = _level_of(name)
        _named(name).setLevel(level)
        _logger.warning(
            "the level of logger %s is %s until the broker stops (it was %s)", name, _level_of(name), before
        )


def _checked(change: Change) -> int:
    name, text = change.name, change.value
    if change.operation not in (Operation.SET, Operation.DELETE):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{change.operation.name} is not for levels of loggers, only SET and DELETE"
        )
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"there is no logger {name!r}; describing the loggers names all of them"
        )
    if change.operation is Operation.SET:
        if text not in _LEVELS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{text!r} is no level for {name}, only {', '.join(_LEVELS)}")
        return _LEVELS[text]
    if name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the level of the root logger can be set, and not be taken back")
    return logging.NOTSET


def _named(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_of(name: str) -> str:
    """Of the logger, or of the nearest one above it that has a level."""
    found: logging.Logger | logging.PlaceHolder | None
    while name != ROOT:
        found = logging.root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return _name_of(found.level)
        name = name.rpartition(".")[0] or ROOT
    return _name_of(logging.root.level)


def _name_of(level: int) -> str:
    return next((name for name in reversed(_LEVELS) if level >= _LEVELS[name]), "TRACE")
