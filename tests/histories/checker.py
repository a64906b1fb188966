"""What must hold of a history, whatever was killed, paused or cut off meanwhile.

``check`` is given all events and returns every breach. The names are those of Jepsen's Kafka workload and of Elle where
they have one; "the end" is the state of the log when all processes had ended and all transactions with them.

1. *lost write*: an acknowledged record is in the log in the end, at the offset that was told.
2. *duplicate write*: no record is in the log twice. Every producer is idempotent.
3. *reordered write*: the records of one producer process stand in a partition in the order in which it sent them.
4. *aborted read*: read_committed never returns a record whose transaction was aborted, or is open in the end.
5. *torn transaction*: all records of a transaction have one outcome, in every partition; one that was told to be
   committed or aborted has that one; a committed one has all its records. None is open in the end.
6. *inexact copy*: of a record that a copier's group has behind it, one copy is visible; of one before it, none. That is
   5 for the offsets: they are committed with the records of their transaction, or not at all.
7. *skipped read*, *unseen write*: a read from one position to the next returns exactly the records that the end shows
   there at its isolation level, in their order. So every reader sees a prefix of the same log, which never changes.
8. *nonmonotonic offset*: a group's committed offset never moves back: not from one acknowledged commit to one that
   began later, not to what a member is told to resume from afterwards, and not to the end.
9. *shared partition*: within a generation no partition belongs to two members, and no two commit it.
10. *unstable read*: the last stable offset is never above the high watermark, and is above the first record of a
    transaction only where the high watermark is above its marker.
11. *watermark backwards*: neither of the two moves back from one answer to one that was asked for later.
12. *stale read*: a high watermark that is asked for after an acknowledgement is above that record.

Where brokers have replicas of each other's partitions, one that has been replaced may not know it yet, and answer. So
11 holds within the life of a broker (its *term*), and 12 of the end that the leader of the epoch in force tells. Of a
broker that has started again, 10 is only that a transaction has ended: it takes from its snapshot which transactions
are open, and does not hear of those that ended before, though the high watermark may be below their markers. Kafka 3.9:
``ProducerStateManager.loadProducerEntry`` fills ``ongoingTxns`` alone, ``truncateAndReload`` empties
``unreplicatedTxns``, and without either ``UnifiedLog.lastStableOffset`` is the high watermark. Nothing undecided is
shown so, for the decision is replicated before a marker is written (``TransactionCoordinator.endTransaction`` appends
it, and sends markers in the callback). Where it follows another leader, and cuts such a marker off, the transaction is
open in its log again, and is the first unstable one (``truncateAndReload`` reads ``ongoingTxns`` anew): so 11 is only
of how far transactions had ended below the high watermark. Besides:

13. *contradicting epochs*: a partition's leader epoch and the version of its state never go back; an epoch has one
    leader, a version one state; the leader is in the ISR. Leader epochs rise along the log.
14. *unequal replicas*: in the end all have the same bytes, and know the same of epochs, producers and aborted
    transactions. Of a compacted partition: all have the same table, and a record that two of them have is the same.

Compaction takes records away from a topic that is told to be compacted. There 1 is only of the offset, 7 only that a
read has of each key what is the last in the end (another replica, which may lead then, was compacted at another time),
and 11 not of the last stable offset of a broker that has started again, for the transaction may be gone that was open.
In their place:

15. *lost row*, *resurrected row*: of each key the end shows the last record that was acknowledged, or a later one; a
    tombstone may be gone, and then nothing older is in its place.
16. *moved row*: a record was never seen at another offset than its own, nor two at one, by whomever.
17. *unsent row*: none was seen that nobody sent to that partition.
18. *wrong table*: what a read_committed reader has read from the start comes to the table that the end shows, as far as
    it came. It may have missed a tombstone that it came to later than ``delete.retention.ms`` after that was sent.

A record that was sent with acks=1 may be lost where another leads since, and only there; it may be there twice, and in
another order. So may that of a producer that is not idempotent, which is not lost. What was read is never lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from histories.evidence import Breach, Check, Evidence, is_plain
from histories.history import READ_COMMITTED, Event, FinalLog, Transaction, place
from histories.rows import is_tombstone, key_of
from histories.tables import TABLE_CHECKS

UNKNOWING_NS = 30_000_000_000
"""How long a leader that was replaced may go on without knowing it; acks=1 promises nothing there."""
COPY_MARK = "@"
"""A copy's value is that of its source, this, and whose copy it is."""


def check(events: Iterable[Event], copied: dict[str, tuple[str, str]] | None = None) -> list[Breach]:
    """Every breach. ``copied``: for a group of copiers, the topics that it reads and writes."""
    evidence = Evidence(events)
    found = [breach for each in CHECKS for breach in each(evidence)]
    for group, (source, target) in (copied or {}).items():
        found += inexact_copies(evidence, group, source, target)
    return found


def lost_writes(evidence: Evidence) -> Iterator[Breach]:
    terms = Terms(evidence)
    for sent, found in _lost(evidence):
        if not _is_hasty(sent) or not terms.changed(sent):
            yield Breach(
                "lost write", f"{_at(sent)} {sent['value']!r} was acknowledged at {sent['offset']}, is at {found}"
            )


def legal_losses(events: Iterable[Event]) -> int:
    """How many records were acknowledged by one replica, and lost with it."""
    evidence = Evidence(events)
    terms = Terms(evidence)
    return sum(_is_hasty(sent) and terms.changed(sent) for sent, _ in _lost(evidence))


def _lost(evidence: Evidence) -> Iterator[tuple[Event, list[int]]]:
    """What was acknowledged and is not where it was told, and where it is instead."""
    for sent in evidence["sent"]:
        log = evidence.logs.get(place(sent))
        found = [entry.offset for entry in log.by_value.get(sent["value"], [])] if log else []
        is_compacted = sent["topic"] in evidence.compacted
        if (not found and not is_compacted) or (found and 0 <= sent["offset"] not in found):
            yield sent, found


def _is_hasty(event: Event) -> bool:
    return str(event.get("acks", "all")) != "all"


class Terms:
    """The leaders of each partition, as ZooKeeper had them."""

    def __init__(self, evidence: Evidence) -> None:
        self._sends = {(*place(send), send["value"]): send["at"] for send in evidence["send"]}
        self._changes: dict[str, int] = {}
        leaders: dict[str, int] = {}
        for event in evidence["states"]:
            for name, (leader, *_) in event["states"].items():
                if leaders.setdefault(name, leader) != leader:
                    self._changes[name] = event["at"]
                    leaders[name] = leader

    def changed(self, sent: Event) -> bool:
        """Whether another led after the record was handed to its producer, or so little before that the leader of then
        may not have known it yet.
        """
        begun = self._sends.get((*place(sent), sent["value"]), 0)
        changed = self._changes.get(_at(sent))
        return changed is not None and changed > begun - UNKNOWING_NS


def duplicate_writes(evidence: Evidence) -> Iterator[Breach]:
    places: dict[str, list[str]] = defaultdict(list)
    hasty = {send["value"] for send in evidence["send"] if _is_hasty(send) or is_plain(send)}
    for (topic, partition), log in evidence.logs.items():
        for entry in log.entries:
            places[entry.value].append(f"{topic}/{partition} {entry.offset}")
    for value, found in places.items():
        if len(found) > 1 and value not in hasty:
            yield Breach("duplicate write", f"{value!r} is at {found}")


def reordered_writes(evidence: Evidence) -> Iterator[Breach]:
    last: dict[tuple[Any, ...], tuple[int, str]] = {}
    for send in evidence["send"]:
        log = None if _is_hasty(send) or is_plain(send) else evidence.logs.get(place(send))
        for entry in log.by_value.get(send["value"], [])[:1] if log else []:
            before = last.get((send["who"], *place(send)))
            if before is not None and entry.offset < before[0]:
                text = f"{_at(send)} {send['value']!r} at {entry.offset}, sent after {before[1]!r} at {before[0]}"
                yield Breach("reordered write", text)
            last[send["who"], *place(send)] = entry.offset, send["value"]


def aborted_reads(evidence: Evidence) -> Iterator[Breach]:
    for read in evidence["read"]:
        log = evidence.logs.get(place(read))
        if read["isolation"] != READ_COMMITTED or log is None:
            continue
        for offset, value in read["records"]:
            entry = log.by_offset.get(offset)
            if entry is not None and not entry.visible:
                yield Breach(
                    "aborted read", f"{_at(read)} {offset} {value!r}, which is {entry.outcome}, by {read['who']}"
                )


def aborted_row_reads(evidence: Evidence) -> Iterator[Breach]:
    aborted = {event["txn"] for event in evidence["aborted"]}
    gone = {(*place(send), send["value"]) for send in evidence["send"] if send["txn"] in aborted}
    for read in evidence["read"]:
        if read["isolation"] == READ_COMMITTED and read["topic"] in evidence.compacted:
            for offset, value in read["records"]:
                if (*place(read), value) in gone:
                    yield Breach("aborted read", f"{_at(read)} {offset} {value!r}, by {read['who']}")


def torn_transactions(evidence: Evidence) -> Iterator[Breach]:
    members: dict[str, list[Event]] = defaultdict(list)
    for send in evidence["send"]:
        if send["txn"] is not None:
            members[send["txn"]].append(send)
    told = {event["txn"]: event["what"] for what in ("committed", "aborted") for event in evidence[what]}
    for txn, sends in members.items():
        found = [(_outcome(evidence, send), send["topic"] in evidence.compacted) for send in sends]
        outcomes = [outcome for outcome, is_compacted in found if outcome != "absent" or not is_compacted]
        there = {outcome for outcome in outcomes if outcome != "absent"}
        committed = "committed" in there or told.get(txn) == "committed"
        wrong = len(there) > 1 or "open" in there or "plain" in there
        wrong |= committed and "absent" in outcomes
        wrong |= txn in told and not there <= {told[txn]}
        if wrong:
            said = told.get(txn, "of unknown outcome")
            yield Breach("torn transaction", f"{txn} is {said}; its records are {sorted(set(outcomes))}")
    for (topic, partition), log in evidence.logs.items():
        for each in log.transactions:
            if each.marker is None:
                yield Breach(
                    "torn transaction", f"one that began at {topic}/{partition} {each.first} is open in the end"
                )


def _outcome(evidence: Evidence, send: Event) -> str:
    log = evidence.logs.get(place(send))
    found = log.by_value.get(send["value"]) if log else None
    return found[0].outcome if found else "absent"


def inexact_copies(evidence: Evidence, group: str, source: str, target: str) -> Iterator[Breach]:
    copies: dict[str, int] = defaultdict(int)
    for (topic, _), log in evidence.logs.items():
        for entry in log.entries if topic == target else []:
            copies[entry.value.partition(COPY_MARK)[0]] += entry.visible
    for final in evidence["final offsets"]:
        for (topic, partition), log in evidence.logs.items():
            if final["group"] != group or topic != source:
                continue
            behind = final["offsets"].get(f"{topic}/{partition}", 0)
            for entry in log.entries:
                due = int(entry.offset < behind and entry.visible)
                if copies[entry.value] != due:
                    where = f"{topic}/{partition} {entry.offset}, and {group} is at {behind}"
                    text = f"{copies[entry.value]} visible copies of {entry.value!r}, which is at {where}"
                    yield Breach("inexact copy", text)


def wrong_reads(evidence: Evidence) -> Iterator[Breach]:
    for read in evidence["read"]:
        log = evidence.logs.get(place(read))
        if log is None:
            continue
        due = log.between(read["first"], read["next"], read["isolation"])
        if read["records"] == due:
            continue
        if read["topic"] in evidence.compacted:
            yield from _wrong_read_of_rows(read, due, log)
            continue
        missing = [record for record in due if record not in read["records"]]
        text = f"{_at(read)} {read['first']} to {read['next']} by {read['who']}: "
        if missing:
            yield Breach("skipped read", f"{text}without {missing[:3]}")
        else:
            unseen = [record for record in read["records"] if record not in due]
            yield Breach("unseen write", f"{text}{unseen[:3] or 'in another order'}")


def _wrong_read_of_rows(read: Event, due: list[list[Any]], log: FinalLog) -> Iterator[Breach]:
    text = f"{_at(read)} {read['first']} to {read['next']} by {read['who']}: "
    last = {key_of(each.value): each.offset for each in log.entries if each.visible}
    missing = [
        [offset, value]
        for offset, value in due
        if [offset, value] not in read["records"] and last.get(key_of(value)) == offset and not is_tombstone(value)
    ]
    if missing:
        yield Breach("skipped read", f"{text}without {missing[:3]}")
    offsets = [offset for offset, _ in read["records"]]
    if offsets != sorted(set(offsets)) or offsets[0] < read["first"]:
        yield Breach("unseen write", f"{text}{offsets}, in another order")


def nonmonotonic_offsets(evidence: Evidence) -> Iterator[Breach]:
    begun = {event["id"]: event for event in evidence["keep"]}
    highest: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for kept in evidence["kept"]:
        keep = begun[kept["id"]]
        for tp, offset in keep["offsets"].items():
            marks = highest[keep["group"], tp]
            marks.append((kept["at"], max(offset, marks[-1][1] if marks else offset)))
    for kept in evidence["kept"]:
        keep = begun[kept["id"]]
        for tp, offset in keep["offsets"].items():
            yield from _moved_back(highest[keep["group"], tp], keep["at"], offset, f"{keep['who']} committed {tp}")
    for event in evidence["resumed"]:
        tp = f"{event['topic']}/{event['partition']}"
        yield from _moved_back(
            highest[event["group"], tp], event["asked"], event["offset"], f"{event['who']} resumes {tp}"
        )
    for final in evidence["final offsets"]:
        for (group, tp), marks in highest.items():
            if group == final["group"]:
                yield from _moved_back(marks, final["at"], final["offsets"].get(tp, 0), f"in the end {group} has {tp}")


def _moved_back(marks: list[tuple[int, int]], asked: int, offset: int, what: str) -> Iterator[Breach]:
    known = bisect_right(marks, (asked, -1))
    if known and offset < marks[known - 1][1]:
        yield Breach("nonmonotonic offset", f"{what} at {offset}, after {marks[known - 1][1]} was acknowledged")


def shared_partitions(evidence: Evidence) -> Iterator[Breach]:
    owners: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for owns in evidence["owns"]:
        for tp in owns["partitions"]:
            owners[owns["group"], owns["generation"], tp].add(owns["member"])
    begun = {event["id"]: event for event in evidence["keep"]}
    for kept in evidence["kept"]:
        keep = begun[kept["id"]]
        for tp in keep["offsets"]:
            owners[keep["group"], keep["generation"], tp].add(keep["member"])
    for (group, generation, tp), members in owners.items():
        if len(members) > 1:
            yield Breach("shared partition", f"{tp} in generation {generation} of {group} belongs to {sorted(members)}")


def unstable_reads(evidence: Evidence) -> Iterator[Breach]:
    for seen in evidence["observed"]:
        where = f"{_at(seen)} last stable offset {seen['stable']}, high watermark {seen['high']}"
        if seen["stable"] > seen["high"]:
            yield Breach("unstable read", where)
        log = evidence.logs.get(place(seen))
        for each in log.transactions if log else []:
            most = seen["high"] if seen.get("first life", True) else log.end
            if each.first < seen["stable"] and not _ended_below(each, most):
                yield Breach("unstable read", f"{where}; from {each.first} on a transaction was open, to {each.marker}")


def _ended_below(transaction: Transaction, high: int) -> bool:
    return transaction.marker is not None and transaction.marker < high


def watermarks_backwards(evidence: Evidence) -> Iterator[Breach]:
    for name in ("high", "stable"):
        highest: dict[tuple[str, int, str | None], list[tuple[int, int]]] = defaultdict(list)
        for seen in evidence["observed"]:
            marks = highest[*place(seen), seen.get("term")]
            known = bisect_right(marks, (seen["asked"], -1))
            if known and seen[name] < marks[known - 1][1]:
                yield Breach("watermark backwards", f"{_at(seen)} {name} from {marks[known - 1][1]} to {seen[name]}")
            lasting = seen[name] if name == "high" else _lasting(evidence, seen)
            marks.append((seen["at"], max(lasting, marks[-1][1] if marks else -1)))


def _lasting(evidence: Evidence, seen: Event) -> int:
    """Up to where what was stable stays so: with one that has started again up to the first transaction whose marker
    was not below the high watermark, for it may be cut off.
    """
    log = evidence.logs.get(place(seen))
    if seen["topic"] in evidence.compacted and not seen.get("first life", True):
        return -1
    transactions = log.transactions if log and not seen.get("first life", True) else []
    cut = [each.first for each in transactions if not _ended_below(each, seen["high"])]
    return int(min([seen["stable"], *cut]))


def stale_reads(evidence: Evidence) -> Iterator[Breach]:
    marks: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for sent in evidence["sent"]:
        if not _is_hasty(sent):
            known = marks[place(sent)]
            known.append((sent["at"], max(sent["offset"], known[-1][1] if known else -1)))
    for seen, end in _told_ends(evidence):
        known = marks[place(seen)]
        acknowledged = bisect_right(known, (seen["asked"], -1))
        if acknowledged and end <= known[acknowledged - 1][1]:
            text = f"{_at(seen)} high watermark {end} after {known[acknowledged - 1][1]} was acknowledged"
            yield Breach("stale read", text)


def _told_ends(evidence: Evidence) -> Iterator[tuple[Event, int]]:
    """The ends that a leader told of its log, which it was when it was asked and when it had answered."""
    for seen in evidence["observed"]:
        if seen.get("term") is None:
            yield seen, seen["high"]
    states = evidence["states"]
    asked = [event["asked"] for event in states]
    for seen in evidence["end"]:
        later = bisect_left(asked, seen["at"])
        known = states[later]["states"].get(_at(seen)) if later < len(states) else None
        if known is not None and known[1] == seen["epoch"]:
            yield seen, seen["offset"]


def contradicting_epochs(evidence: Evidence) -> Iterator[Breach]:
    last: dict[str, list[Any]] = {}
    leaders: dict[tuple[str, int], int] = {}
    for event in evidence["states"]:
        for name, state in event["states"].items():
            leader, epoch, isr, version = state
            before = last.get(name, state)
            wrong = epoch < before[1] or version < before[3] or (version == before[3] and state != before)
            wrong |= leaders.setdefault((name, epoch), leader) != leader
            wrong |= not isr or len(set(isr)) < len(isr) or (leader >= 0 and leader not in isr)
            if wrong:
                yield Breach("contradicting epochs", f"{name} was {before}, is {state}")
            last[name] = state
    for (topic, partition), log in evidence.logs.items():
        if log.leader_epochs != sorted(log.leader_epochs):
            yield Breach("contradicting epochs", f"{topic}/{partition} has batches of the epochs {log.leader_epochs}")


def unequal_replicas(evidence: Evidence) -> Iterator[Breach]:
    first: dict[tuple[str, int], Event] = {}
    for each in evidence["replica"]:
        other = first.setdefault(place(each), each)
        names = each.keys() - {"at", "asked", "who", "broker", "rows"} - ({"producers"} if "rows" in each else set())
        differ = sorted(name for name in names if each[name] != other[name])
        yield from _unequal_rows(other, each)
        if differ:
            told = "; ".join(f"{name}: {other[name]} and {each[name]}" for name in differ)
            yield Breach("unequal replicas", f"{_at(each)} of brokers {other['broker']} and {each['broker']}: {told}")


def _unequal_rows(one: Event, other: Event) -> Iterator[Breach]:
    """Of a producer of which only a marker is known, another replica may know nothing: markers are emptied."""
    told = f"{_at(one)} of brokers {one['broker']} and {other['broker']}"
    if "rows" not in one:
        return
    by_offset = {row[0]: row for row in one["rows"]}
    for row in other["rows"]:
        if by_offset.get(row[0], row) != row:
            yield Breach("unequal replicas", f"{told}: {by_offset[row[0]]} and {row}")
    for number in sorted(one["producers"].keys() | other["producers"].keys()):
        mine, yours = (each["producers"].get(number, [-1, None]) for each in (one, other))
        if [] not in (mine[1], yours[1]) and mine != yours:
            yield Breach("unequal replicas", f"{told}: producer {number} is {mine} and {yours}")
    tables = [_last_values(each["rows"]) for each in (one, other)]
    for key in sorted(tables[0].keys() | tables[1].keys()):
        if tables[0].get(key) != tables[1].get(key):
            yield Breach("unequal replicas", f"{told}: {key} is {tables[0].get(key)} and {tables[1].get(key)}")


def _last_values(rows: Iterable[list[Any]]) -> dict[str, list[Any]]:
    """The table of a replica: of each key the last record that counts, unless it is a tombstone."""
    last = {row[1]: row for row in rows if row[3]}
    return {key: row for key, row in last.items() if not row[2]}


def _at(event: Event) -> str:
    return f"{event['topic']}/{event['partition']}"


CHECKS: tuple[Check, ...] = (
    lost_writes,
    duplicate_writes,
    reordered_writes,
    aborted_reads,
    torn_transactions,
    wrong_reads,
    aborted_row_reads,
    *TABLE_CHECKS,
    nonmonotonic_offsets,
    shared_partitions,
    unstable_reads,
    watermarks_backwards,
    stale_reads,
    contradicting_epochs,
    unequal_replicas,
)
