"""Histories: what every process of a workload asked for and was told, and what the log held in the end.

A history is a set of files of JSON lines, one file a process; a line is written at once, so that SIGKILL loses none
but the last, of which a half may be left. ``at`` is the machine's monotonic clock in nanoseconds, the same for all.
A request is two lines, the invocation and the completion; where the second is missing the outcome is not known.

| what | says | fields |
| --- | --- | --- |
| send | a record is handed to the producer | topic, partition, value, txn (None: outside transactions), acks, plain |
| sent | it is acknowledged | topic, partition, value, offset (-1: not known), acks |
| commit, committed | the end of a transaction is asked for, is known | txn |
| abort, aborted | likewise | txn |
| owns | all the partitions of a member, after they changed | group, member, generation, partitions |
| resumed | where a member goes on, by what its group has committed | group, topic, partition, offset, asked |
| read | all that was delivered from one position to the next | topic, partition, isolation, first, next, records |
| keep, kept | offsets are committed, outside transactions | id, group, member, generation, offsets |
| observed | one Fetch answer | asked, topic, partition, high, stable, first life, term (a broker's life; None: any) |
| states | what ZooKeeper has of every partition: leader, leader epoch, ISR, version | asked, states |
| end | what a leader says, under this leader epoch, that clients may see | asked, topic, partition, epoch, offset |
| final log | every batch of a partition, when all had ended | topic, partition, start, end, batches |
| compacted | a topic keeps the last record of a key | topic, retention ms (of its tombstones) |
| clock stepped | the clock of a broker; what is promised for a time is not any more | broker |
| replica | what a broker has of a partition in the end | broker, topic, partition, and those of ``replicas.replicas`` |
| final offsets | of a group | group, offsets |
| fault, note | what was done to whom; what a process has to say | anything |

In a compacted topic a value is a row's text (``rows``), and a batch tells the ``offsets`` of its values. ``asked`` is
when the question was put that is answered at ``at``; ``offsets`` maps ``topic/partition`` to offset.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class Recorder:
    """Appends one process's events to its file."""

    def __init__(self, directory: Path, who: str) -> None:
        self._who = who
        self._file = os.open(directory / f"{who}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what: str, **fields: Any) -> None:
        event = {"at": now(), "who": self._who, "what": what, **fields}
        os.write(self._file, json.dumps(event).encode() + b"\n")


def now() -> int:
    return time.monotonic_ns()


def load(directory: Path) -> list[Event]:
    """All events of a history, in the order of their times."""
    events: list[Event] = []
    for path in directory.glob("*.jsonl"):
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        events += map(json.loads, whole.splitlines())
    return sorted(events, key=lambda event: event["at"])


class Progress:
    """When each process told of each kind of event last. What was read once is not read again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._latest: dict[tuple[str, str], int] = {}

    def since(self, then: int) -> set[tuple[str, str]]:
        """Who has told of what after ``then``."""
        for path in self._directory.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole + newline)
            for event in map(json.loads, whole.splitlines()):
                self._latest[event["who"], event["what"]] = event["at"]
        return {key for key, at in self._latest.items() if at > then}


class Entry(NamedTuple):
    """A record as the log has it in the end; ``outcome`` is plain, committed, aborted or open."""

    offset: int
    value: str
    outcome: str

    @property
    def visible(self) -> bool:
        """Whether read_committed may show it."""
        return self.outcome in ("plain", "committed")


class Transaction(NamedTuple):
    """A transaction in one partition: its first offset, its marker's (None: it is open), and how it ended."""

    first: int
    marker: int | None
    outcome: str


class FinalLog:
    """One partition in the end, from its ``final log`` event."""

    def __init__(self, event: Event) -> None:
        self.topic: str = event["topic"]
        self.partition: int = event["partition"]
        self.start: int = event["start"]
        self.end: int = event["end"]
        self.transactions = list(transactions(event["batches"]))
        self.entries = list(_entries(event["batches"], self.transactions))
        self.by_offset = {entry.offset: entry for entry in self.entries}
        self.leader_epochs = [batch.get("leader epoch", 0) for batch in event["batches"]]
        self._offsets = [entry.offset for entry in self.entries]
        self.by_value: dict[str, list[Entry]] = {}
        for entry in self.entries:
            self.by_value.setdefault(entry.value, []).append(entry)

    def between(self, first: int, following: int, isolation: str) -> list[list[Any]]:
        """The offsets and values that such a reader must be given in this range."""
        return [
            [entry.offset, entry.value]
            for entry in self.entries[bisect_left(self._offsets, first) : bisect_left(self._offsets, following)]
            if entry.visible or isolation == READ_UNCOMMITTED
        ]


def transactions(batches: Iterable[Event]) -> Iterator[Transaction]:
    """Those of a log whose batches are told as in a ``final log`` event."""
    running: dict[int, int] = {}
    for batch in batches:
        producer, kind = batch["producer"], batch["kind"]
        if kind == "transactional":
            running.setdefault(producer, batch["offset"])
        elif kind in ("commit", "abort") and producer in running:
            outcome = "committed" if kind == "commit" else "aborted"
            yield Transaction(running.pop(producer), batch["offset"], outcome)
    for first in running.values():
        yield Transaction(first, None, "open")


def _entries(batches: Iterable[Event], transactions: list[Transaction]) -> Iterator[Entry]:
    outcomes = {transaction.first: transaction.outcome for transaction in transactions}
    running: dict[int, str] = {}
    for batch in batches:
        kind, outcome = batch["kind"], "plain"
        if kind in ("commit", "abort"):
            running.pop(batch["producer"], None)
            continue
        if kind == "transactional":
            outcome = running.setdefault(batch["producer"], outcomes.get(batch["offset"], "open"))
        offsets = batch.get("offsets") or range(batch["offset"], batch["offset"] + len(batch["values"]))
        for offset, value in zip(offsets, batch["values"], strict=True):
            yield Entry(offset, value, outcome)


def place(event: Event) -> tuple[str, int]:
    """Topic and partition of an event."""
    return event["topic"], event["partition"]
