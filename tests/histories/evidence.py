"""What a checker is given, and what it finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from histories.history import Event, FinalLog, place


class Breach(NamedTuple):
    """One thing that must not be; ``name`` as in the list above."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Evidence:
    """The events by kind, and the logs in the end."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._kinds: dict[str, list[Event]] = defaultdict(list)
        for event in sorted(events, key=lambda event: event["at"]):
            self._kinds[event["what"]].append(event)
        self.logs = {place(event): FinalLog(event) for event in self["final log"]}
        self.compacted = {event["topic"]: event["retention ms"] * 1_000_000 for event in self["compacted"]}
        """How long tombstones stay, in nanoseconds."""

    def __getitem__(self, what: str) -> list[Event]:
        return self._kinds.get(what, [])


Check = Callable[[Evidence], Iterator[Breach]]


def is_plain(send: Event) -> bool:
    """Whether the producer is not idempotent: what it sends again may be there twice, and in another order."""
    return bool(send.get("plain"))
