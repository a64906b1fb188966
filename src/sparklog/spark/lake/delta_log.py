"""The files of a Delta table's log, by their paths (Delta's protocol, "Delta Log Entries" and "Checkpoints")."""

from __future__ import annotations

import re
from collections.abc import Iterable

DELTA_LOG = "_delta_log"
"""The directory, from the table's root on."""
_COMMIT = re.compile(r"/(\d{20})\.json$")
_CHECKPOINT = re.compile(
    r"/(?P<version>\d{20})\.checkpoint(\.\d{10}\.(?P<parts>\d{10})|\.(?P<id>[^./]+))?\.(json|parquet)$"
)
"""Of one file, of several, or of one with a name that was drawn."""


def commit_name(version: int) -> str:
    """The name of the file of a commit."""
    return f"{version:020d}.json"


def commits_after(paths: Iterable[str], version: int) -> list[tuple[int, str]]:
    """The later commits of those files, in their order: the version and the path of each."""
    found = ((int(match[1]), path) for path in paths if (match := _COMMIT.search(path)))
    return sorted(each for each in found if each[0] > version)


def newest_checkpoint(paths: Iterable[str]) -> tuple[int, list[str]]:
    """Its version and its files; -1 where there is none. One of several files counts if all of them are there."""
    found: dict[tuple[int, str], list[str]] = {}
    for path in paths:
        if match := _CHECKPOINT.search(path):
            found.setdefault((int(match["version"]), match["parts"] or match["id"] or ""), []).append(path)
    whole = [(version, files) for (version, kind), files in found.items() if len(files) == _parts_of(kind)]
    return max(whole, default=(-1, []))


def _parts_of(kind: str) -> int:
    return int(kind) if kind.isdecimal() else 1
