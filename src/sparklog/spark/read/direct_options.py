"""Whether tasks may read segment files themselves, and where they find them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

from sparklog.spark.raw_options import RawOptions, invalid


class DirectMode(Enum):
    """The option ``directRead``."""

    AUTO = "auto"
    """From files where they are visible and are what the broker means, else by Fetch."""
    NEVER = "never"
    ALWAYS = "always"
    """Fail where files cannot be read."""


class Mapped(NamedTuple):
    """A broker's file as it is named here, and the directory that the user has named, below which it must be."""

    path: str
    root: str


@dataclass(frozen=True)
class DirectOptions:
    """``mapping``: directories of brokers and where they are mounted here, the longest first."""

    mode: DirectMode = DirectMode.AUTO
    mapping: tuple[tuple[PurePosixPath, PurePosixPath], ...] = ()

    @classmethod
    def of(cls, given: RawOptions) -> DirectOptions:
        mode = DirectMode(given.word("directRead", "auto", "never", "always"))
        return cls(mode, _mapping(given.get("directReadMapping") or ""))

    def mapped(self, path: str) -> Mapped | None:
        """Where a broker's file is found here; None if no mapping covers it, so that it is found under its own name."""
        wanted = PurePosixPath(path)
        for theirs, ours in self.mapping:
            if wanted.is_relative_to(theirs):
                return Mapped(str(ours / wanted.relative_to(theirs)), str(ours))
        return None


def _mapping(text: str) -> tuple[tuple[PurePosixPath, PurePosixPath], ...]:
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        theirs, equals, ours = (each.strip() for each in part.partition("="))
        if not (equals and theirs.startswith("/") and ours.startswith("/")):
            raise invalid("directReadMapping", part, "write it like /broker/dir=/mounted/dir, both absolute")
        pairs.append((PurePosixPath(theirs), PurePosixPath(ours)))
    return tuple(sorted(pairs, key=lambda pair: len(pair[0].parts), reverse=True))
