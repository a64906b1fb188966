"""Options that name directories: log directories to read, and where directories of brokers are mounted."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePosixPath

from sparklog.spark.options.definition import Kind, invalid
from sparklog.spark.options.kinds import choice

Mounts = tuple[tuple[PurePosixPath, PurePosixPath], ...]
"""Directories of brokers and where each is mounted here, the longest first."""


class DirectMode(Enum):
    """The option ``directRead``."""

    AUTO = "auto"
    """From files where they are visible and are the leader's own, else by Fetch."""
    NEVER = "never"
    ALWAYS = "always"
    """Fail where files cannot be read."""


def _log_directories(name: str, text: str) -> tuple[str, ...]:
    found = tuple(filter(None, (_local(name, part.strip()) for part in text.split(","))))
    if not found:
        raise invalid(name, text, "it names no log directory")
    return found


def _local(name: str, text: str) -> str:
    path = re.sub(r"^file:(//)?(?=/)", "", text)
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", path):
        raise invalid(name, text, "log directories are read from local or mounted file systems")
    return path


def _mounts(name: str, text: str) -> Mounts:
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        theirs, equals, ours = (each.strip() for each in part.partition("="))
        if not (equals and theirs.startswith("/") and ours.startswith("/")):
            raise invalid(name, part, "write it like /broker/dir=/mounted/dir, both absolute")
        pairs.append((PurePosixPath(theirs), PurePosixPath(ours)))
    return tuple(sorted(pairs, key=lambda pair: len(pair[0].parts), reverse=True))


LOG_DIRECTORIES = Kind(_log_directories, "directories, separated by commas")
MOUNTS = Kind(_mounts, "`/broker/dir=/mounted/dir,…`")
DIRECT_MODE = choice({mode.value: mode for mode in DirectMode})
