"""What must hold of a table, a compacted topic: 15 to 18 of ``checker``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from histories.evidence import Breach, Check, Evidence, is_plain
from histories.history import READ_COMMITTED, Event, place
from histories.rows import is_tombstone, key_of

Place = tuple[str, int]


class Row(NamedTuple):
    """A record that somebody handed to a producer."""

    text: str
    offset: int | None
    """Where it is or was; None if nobody has told. The last one, if it was written twice."""
    counts: bool | None
    """Whether it is the table's; None if that is not known."""
    at: int

    @property
    def is_tombstone(self) -> bool:
        return is_tombstone(self.text)

    def __str__(self) -> str:
        return f"{self.text!r} at {self.offset}"


Seen = tuple[Place, int, str, str]
"""Where, the offset, the record, and who saw it."""


def _seen(evidence: Evidence) -> Iterator[Seen]:
    """Every record of a table that anybody was told of."""
    for sent in evidence["sent"]:
        if sent["topic"] in evidence.compacted and sent["offset"] >= 0:
            yield place(sent), sent["offset"], sent["value"], sent["who"]
    for read in evidence["read"]:
        for offset, text in read["records"] if read["topic"] in evidence.compacted else ():
            yield place(read), offset, text, read["who"]
    for (topic, partition), log in evidence.logs.items():
        for entry in log.entries if topic in evidence.compacted else ():
            yield (topic, partition), entry.offset, entry.value, "the end"


def moved_rows(evidence: Evidence) -> Iterator[Breach]:
    twice = {(place(send), send["value"]) for send in evidence["send"] if is_plain(send)}
    texts: dict[tuple[Place, int], str] = {}
    offsets: dict[tuple[Place, str], int] = {}
    for where, offset, text, who in _seen(evidence):
        if texts.setdefault((where, offset), text) != text:
            yield Breach("moved row", f"{where} {offset} is {texts[where, offset]!r}, and {text!r} to {who}")
        elif offsets.setdefault((where, text), offset) != offset and (where, text) not in twice:
            yield Breach("moved row", f"{where} {text!r} is at {offsets[where, text]}, and at {offset} to {who}")


def unsent_rows(evidence: Evidence) -> Iterator[Breach]:
    sent = {(place(send), send["value"]) for send in evidence["send"]}
    for where, offset, text, who in _seen(evidence):
        if (where, text) not in sent:
            yield Breach("unsent row", f"{where} {offset} is {text!r} to {who}")


def _rows(evidence: Evidence) -> dict[Place, dict[str, list[Row]]]:
    """By place and key, in the order in which they were sent."""
    offsets: dict[tuple[Place, str], int] = {}
    for where, offset, text, _ in _seen(evidence):
        offsets[where, text] = max(offset, offsets.get((where, text), -1))
    acknowledged = {(place(sent), sent["value"]) for sent in evidence["sent"]}
    outcomes = {event["txn"]: what == "committed" for what in ("committed", "aborted") for event in evidence[what]}
    found: dict[Place, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for send in evidence["send"]:
        key = key_of(send["value"])
        if send["topic"] in evidence.compacted and key is not None:
            name = (place(send), send["value"])
            counts = outcomes.get(send["txn"]) if send["txn"] else (name in acknowledged or None)
            found[place(send)][key].append(Row(send["value"], offsets.get(name), counts, send["at"]))
    return found


def _shown(evidence: Evidence, where: Place) -> dict[str, tuple[int, str]]:
    """By key the last record that the end shows to a read_committed reader."""
    log = evidence.logs[where]
    return {key_of(each.value) or "": (each.offset, each.value) for each in log.entries if each.visible}


def _last(rows: list[Row]) -> Row | None:
    """The last that is known to count, and where it is."""
    return max((each for each in rows if each.counts and each.offset is not None), key=_offset, default=None)


def _offset(row: Row) -> int:
    return -1 if row.offset is None else row.offset


def _may_be_gone(rows: list[Row], last: Row) -> bool:
    """Whether a tombstone may have been the last of all."""
    unknown = [
        each for each in rows if each.counts is not False and (each.offset is None or each.offset > _offset(last))
    ]
    return last.is_tombstone or any(each.is_tombstone for each in unknown)


def lost_rows(evidence: Evidence) -> Iterator[Breach]:
    for where, keys in _rows(evidence).items():
        shown = _shown(evidence, where) if where in evidence.logs else {}
        for key, rows in keys.items():
            last, end = _last(rows), shown.get(key)
            if last is None or where not in evidence.logs:
                continue
            if end is None and not _may_be_gone(rows, last):
                yield Breach("lost row", f"{where} {key}: {last} was the last, the end has none")
            elif end is not None and end[0] < _offset(last):
                name = "resurrected row" if last.is_tombstone else "lost row"
                yield Breach(name, f"{where} {key}: {last} was the last, the end has {end}")


class _Replay:
    """What a reader has come to that began at the start."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.table: dict[str, tuple[int, str]] = {}
        self.passed: list[tuple[int, int]] = []
        """When it came to which position."""

    def add(self, read: Event) -> None:
        self.passed.append((read["at"], read["next"]))
        self.table |= {key_of(text) or "": (offset, text) for offset, text in read["records"]}

    @property
    def position(self) -> int:
        return self.passed[-1][1]

    def passed_at(self, offset: int) -> int:
        """When it was beyond ``offset``, in nanoseconds."""
        return next(at for at, position in self.passed if position > offset)


def _replays(evidence: Evidence) -> Iterator[tuple[Place, _Replay]]:
    running: dict[tuple[str, Place], _Replay] = {}
    for read in evidence["read"]:
        if read["topic"] not in evidence.compacted or read["isolation"] != READ_COMMITTED:
            continue
        name = read["who"], place(read)
        if read["first"] == 0:
            running[name] = _Replay(read["who"])
            yield place(read), running[name]
        if name in running:
            running[name].add(read)


def wrong_tables(evidence: Evidence) -> Iterator[Breach]:
    rows = _rows(evidence)
    shown = {where: _shown(evidence, where) for where in evidence.logs if where[0] in evidence.compacted}
    for where, replay in list(_replays(evidence)):
        for key in sorted(shown[where].keys() | replay.table.keys()) if where in shown else ():
            end, mine = shown[where].get(key), replay.table.get(key)
            if end is None or is_tombstone(end[1]):
                if mine is not None and not is_tombstone(mine[1]):
                    yield from _outdated(evidence, where, rows[where][key], mine, replay)
            elif end[0] < replay.position and mine != end:
                yield Breach("wrong table", f"{where} {key} is {end} in the end, {mine} to {replay.who}")


def _outdated(
    evidence: Evidence, where: Place, rows: list[Row], mine: tuple[int, str], replay: _Replay
) -> Iterator[Breach]:
    """A value that a reader has, where the end has none: it has to have missed the tombstone by being late."""
    tombstones = [each for each in rows if each.is_tombstone and each.counts is not False and _offset(each) > mine[0]]
    unknown = [each for each in rows if each.is_tombstone and each.counts is not False and each.offset is None]
    last = max(tombstones, key=_offset, default=None)
    if unknown or evidence["clock stepped"] or (last is not None and _offset(last) >= replay.position):
        return
    if last is None or replay.passed_at(_offset(last)) - last.at < evidence.compacted[where[0]]:
        yield Breach("wrong table", f"{where}: {mine} to {replay.who} in time for {last}")


TABLE_CHECKS: tuple[Check, ...] = (moved_rows, unsent_rows, lost_rows, wrong_tables)
