"""The sequences that are known by name, and the list of differences that are allowed, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from differential.pair import Difference, Pair

from sparklog.broker.registry import OFFERED
from sparklog.protocol.api_key import ApiKey

ALLOWED = Path(__file__).with_name("allow.txt")
SEQUENCES: list[Sequence] = []


class Sequence(NamedTuple):
    """A sequence of requests, run once for each level of versions of the APIs that it is about."""

    name: str
    run: Callable[[Pair], None]
    apis: tuple[ApiKey, ...]

    @property
    def levels(self) -> int:
        return max(len(OFFERED[api]) for api in self.apis)


def sequence(*apis: ApiKey) -> Callable[[Callable[[Pair], None]], Callable[[Pair], None]]:
    """Enter a function in the table, under its name."""

    def enter(run: Callable[[Pair], None]) -> Callable[[Pair], None]:
        SEQUENCES.append(Sequence(run.__name__.replace("_", "-"), run, apis))
        return run

    return enter


class Allowance(NamedTuple):
    """A line of ``allow.txt``: globs for API, sequence/step, path and ``Kafka's -> ours``, and why."""

    api: str
    step: str
    path: str
    values: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        return (
            fnmatchcase(difference.api, self.api)
            and fnmatchcase(f"{difference.sequence}/{difference.step}", self.step)
            and fnmatchcase(difference.path, self.path)
            and fnmatchcase(f"{difference.kafka} -> {difference.ours}", self.values)
        )


def allowances(text: str | None = None) -> list[Allowance]:
    """The allowed differences; ValueError for a line without a reason."""
    found = []
    for line in (ALLOWED.read_text() if text is None else text).splitlines():
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|")]
            if len(parts) != 5 or not all(parts):
                raise ValueError(f"not «API | sequence/step | path | Kafka's -> ours | reason»: {line!r}")
            found.append(Allowance(*parts))
    return found
