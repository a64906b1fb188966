"""The checker against hand-made histories of a table: what compaction may take away, and what it must not."""

from contextlib import closing

import pytest
from compaction.keyed import START_MS, Producer, append, mark
from compaction.ours import clean, opened
from histories.checker import check
from histories.history import READ_COMMITTED
from histories.replicas import compacted_replicas, end_of, kind_of
from histories.rows import from_wire, is_tombstone, key_of, on_wire, row

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches

RETENTION_MS = 1
LATE_NS = 2_000_000
"""Longer than tombstones are promised to stay."""


def event(what, who="p", **fields):
    return {"what": what, "who": who, **fields}


def send(value, txn=None, who="p", **fields):
    return event("send", who, topic="t", partition=0, value=value, txn=txn, **fields)


def sent(value, offset):
    return event("sent", topic="t", partition=0, value=value, offset=offset)


def read(first, following, *records, who="r"):
    place = {"topic": "t", "partition": 0, "isolation": READ_COMMITTED, "records": list(map(list, records))}
    return event("read", who, first=first, next=following, **place)


def batch(*records, kind="plain", producer=-1, offset=None):
    """A batch of these offsets and values; without any, one at ``offset``."""
    offsets = [offset for offset, _ in records]
    first, last = (offsets[0], offsets[-1]) if offsets else (offset, offset)
    told = {"offset": first, "last": last, "producer": producer, "epoch": 0, "kind": kind}
    return {**told, "values": [value for _, value in records], "offsets": offsets}


def final_log(*batches, end=20):
    return event("final log", topic="t", partition=0, start=0, end=end, batches=list(batches))


def good():
    """Three keys: ``a`` written twice, ``b`` written and deleted, its tombstone gone too, ``c`` in transactions."""
    return {
        "compacted": event("compacted", topic="t", **{"retention ms": RETENTION_MS}),
        "send a1": send("a=1"),
        "sent a1": sent("a=1", 0),
        "send b1": send("b=1"),
        "sent b1": sent("b=1", 1),
        "send c1": send("c=1", "t1", "x"),
        "sent c1": sent("c=1", 2),
        "committed 1": event("committed", "x", txn="t1"),
        "early": read(0, 2, [0, "a=1"], [1, "b=1"]),
        "send b2": send("b!2"),
        "sent b2": sent("b!2", 4),
        "send c2": send("c=2", "t2", "x"),
        "sent c2": sent("c=2", 5),
        "aborted 2": event("aborted", "x", txn="t2"),
        "send a2": send("a=2"),
        "sent a2": sent("a=2", 7),
        "early goes on": read(2, 8, [2, "c=1"], [4, "b!2"], [7, "a=2"]),
        "later": read(0, 8, [2, "c=1"], [7, "a=2"], who="s"),
        "log": final_log(
            batch((2, "c=1"), kind="transactional", producer=9),
            batch(offset=3, kind="commit", producer=9),
            batch((7, "a=2")),
        ),
    }


def breaches(history):
    """Their names, in a history whose events follow one another."""
    timed = [{"at": 10 * at, "asked": 10 * at - 1, **each} for at, each in enumerate(history.values())]
    return sorted({breach.name for breach in check(timed)})


def changed(**events):
    """The good history with some events replaced, or left out (None), or added at its end; ``_`` for blanks."""
    history = good() | {name.replace("_", " "): value for name, value in events.items()}
    return {name: value for name, value in history.items() if value is not None}


COMMITTED = good()["log"]["batches"][:2]
LAST = good()["log"]["batches"][2]


def ends_with(*batches):
    return changed(log=final_log(*batches))


def test_nothing_is_wrong_with_what_compaction_may_leave():
    assert breaches(good()) == []


@pytest.mark.parametrize(
    "history",
    [
        ends_with(*COMMITTED, batch((4, "b!2")), LAST),
        ends_with(batch((0, "a=1"), (1, "b=1")), *COMMITTED, batch((4, "b!2")), LAST),
        changed(sent_a2=None),
        changed(sent_b2=None),
        changed(sent_a2=sent("a=2", -1)),
        changed(more=send("a!9"), log=final_log(*COMMITTED)),
        changed(aborted_2=None, log=final_log(*COMMITTED, batch((5, "c=2"), kind="transactional", producer=9),
                                              batch(offset=6, kind="commit", producer=9), LAST), later=None,
                early_goes_on=None),
        changed(early_goes_on=None),
        changed(early_goes_on=read(2, 3, [2, "c=1"])),
    ],
    ids=["a tombstone is there yet", "nothing was compacted", "not acknowledged", "a tombstone not acknowledged",
         "at an offset that was not told", "a tombstone whose fate is not known", "a commit whose fate is not known",
         "a reader that stopped", "a reader that stopped before the tombstone"],
)  # fmt: skip
def test_what_compaction_may_do_is_no_breach(history):
    assert breaches(history) == []


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("lost row", ends_with(*COMMITTED)),
        ("lost row", ends_with(*COMMITTED, batch((0, "a=1")))),
        ("lost row", ends_with(LAST)),
        ("resurrected row", ends_with(batch((1, "b=1")), *COMMITTED, LAST)),
        ("lost write", ends_with(*COMMITTED, batch((8, "a=2")))),
        ("moved row", ends_with(*COMMITTED, batch((8, "a=2")))),
        ("moved row", changed(later=read(0, 8, [2, "c=1"], [6, "a=2"], who="s"))),
        ("moved row", changed(more=send("a=3"), log=final_log(*COMMITTED, batch((7, "a=3"))))),
        ("unsent row", ends_with(*COMMITTED, LAST, batch((8, "z=1")))),
        ("unsent row", changed(later=read(0, 8, [2, "c=1"], [4, "b!2, but b'b': b'x'"], [7, "a=2"], who="s"))),
        ("reordered write", changed(log=final_log(batch((0, "a=2"), (7, "a=1")), *COMMITTED),
                                    sent_a1=None, sent_a2=None, early=None, early_goes_on=None, later=None)),
        ("skipped read", changed(later=read(0, 8, [2, "c=1"], who="s"))),
        ("skipped read", changed(early_goes_on=read(2, 8, [4, "b!2"], [7, "a=2"]))),
        ("wrong table", changed(later=read(0, 8, [2, "c=1"], who="s"))),
        ("unseen write", changed(later=read(0, 8, [7, "a=2"], [2, "c=1"], who="s"))),
        ("aborted read", changed(early_goes_on=read(2, 8, [2, "c=1"], [4, "b!2"], [5, "c=2"], [7, "a=2"]))),
        ("aborted read", ends_with(*COMMITTED, batch((5, "c=2"), kind="transactional", producer=9),
                                   batch(offset=6, kind="abort", producer=9), LAST)
                         | {"wrong": read(0, 6, [2, "c=1"], [5, "c=2"], who="u")}),
        ("torn transaction", ends_with(*COMMITTED, batch((5, "c=2")), LAST)),
        ("torn transaction", ends_with(COMMITTED[0], LAST)),
        ("wrong table", changed(early_goes_on=read(2, 8, [2, "c=1"], [7, "a=2"]))),
    ],
)  # fmt: skip
def test_each_breach_is_found(name, history):
    assert name in breaches(history)


def test_a_tombstone_may_be_missed_by_who_is_late_or_where_a_clock_was_set():
    missed = changed(early_goes_on=read(2, 8, [2, "c=1"], [7, "a=2"]))
    assert breaches(missed) == ["wrong table"]
    late = {"at": LATE_NS, **read(2, 8, [2, "c=1"], [7, "a=2"])}
    assert breaches(changed(early_goes_on=late)) == []
    assert breaches(missed | {"clock": event("clock stepped", broker=1)}) == []


def test_a_producer_that_is_plain_promises_no_order_and_may_write_twice():
    swapped = changed(
        log=final_log(batch((0, "a=2"), (7, "a=1")), *COMMITTED),
        **dict.fromkeys(("sent_a1", "sent_a2", "early", "early_goes_on", "later")),
        send_a1=send("a=1", plain=True),
        send_a2=send("a=2", plain=True),
    )
    assert breaches(swapped) == []
    twice = changed(
        send_a2=send("a=2", plain=True), again=sent("a=2", 9), log=final_log(*COMMITTED, batch((7, "a=2"), (9, "a=2")))
    )
    assert breaches(twice) == []


def replica(broker, *rows, **fields):
    """``rows``: offset, key, whether a tombstone, whether it counts, digest."""
    same = {"start": 0, "end": 9, "producers": {}, "rows": list(map(list, rows))}
    return event("replica", topic="t", partition=0, broker=broker, **same | fields)


A1, A2 = (0, "a", False, True, "1"), (7, "a", False, True, "2")
B1, B2 = (1, "b", False, True, "3"), (4, "b", True, True, "4")
ABORTED, MARKER = (5, "a", False, False, "5"), (6, None, False, False, "6")


@pytest.mark.parametrize("other", [(A2,), (A1, B1, B2, A2), (B2, A2), (A1, A2), (A2, ABORTED), (MARKER, A2)])
def test_replicas_may_differ_in_what_is_outdated(other):
    assert breaches(changed(x=replica(0, A1, B1, B2, A2), y=replica(1, *other))) == []


@pytest.mark.parametrize(
    "other",
    [
        (B2,),
        (A1, B2),
        (B1, A2),
        (B2, (7, "a", False, True, "9")),
        (B2, (8, "a", False, True, "2")),
        (B2, A2, (8, "c", False, True, "7")),
        (B2, (0, "a", False, True, "9"), A2),
    ],
    ids=["lost", "an older one", "resurrected", "another", "moved", "one more", "another outdated one"],
)
def test_replicas_must_not_differ_in_their_tables(other):
    assert breaches(changed(x=replica(0, A1, B1, B2, A2), y=replica(1, *other))) == ["unequal replicas"]


BATCH = [0, 3, 4, 7, -1]


@pytest.mark.parametrize(
    "differs",
    [
        {"end": 8},
        {"start": 1},
        {"producers": {}},
        {"producers": {"7": [1, [BATCH], -1]}},
        {"producers": {"7": [0, [[0, 2, 4, 6, -1]], -1]}},
    ],
)
def test_replicas_must_not_differ_in_their_ends_and_producers(differs):
    known = {"producers": {"7": [0, [BATCH], -1]}}
    both = changed(x=replica(0, A2, **known), y=replica(1, A2, **known | differs))
    assert breaches(both) == ["unequal replicas"]


@pytest.mark.parametrize("other", [{}, {"7": [1, [BATCH], -1]}])
def test_a_producer_of_whom_only_a_marker_is_known_may_be_unknown_elsewhere(other):
    both = changed(x=replica(0, A2, producers={"7": [2, [], -1]}), y=replica(1, A2, producers=other))
    assert breaches(both) == []


def test_the_files_of_replicas_are_told_record_by_record(tmp_path):
    """One of two was compacted: a marker is emptied, an older value gone, and the table the same."""
    homes = [tmp_path / name / "t-0" for name in ("a", "b")]
    config = parse(TopicConfig, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    for home in homes:
        home.mkdir(parents=True)
        with closing(opened(home, config, START_MS)) as log:
            append(log, (b"a", b"1"), (b"b", b"1"))
            append(log, (b"a", b"aborted"), producer=Producer(7, 0, 0, is_transactional=True))
            mark(log, Producer(7, 1, -1), ControlType.ABORT)
            append(log, (b"a", b"2"))
            log.roll()
            append(log, (b"c", b"1"))
    for later_ms in range(3):
        clean(homes[1], config={"delete.retention.ms": "0"}, now_ms=START_MS + later_ms)
    whole, cleaned_one = compacted_replicas(homes)
    rows = [[row[0] for row in each["rows"]] for each in (whole, cleaned_one)]
    assert rows == [[0, 1, 2, 3, 4, 5], [1, 4, 5]]
    assert [row[1:4] for row in whole["rows"][2:4]] == [["61", False, False], [None, False, False]]
    assert [end_of(home) for home in homes] == [whole["end"], cleaned_one["end"]] == [6, 6]
    events = [event("replica", topic="t", partition=0, broker=n, **each) for n, each in enumerate((whole, cleaned_one))]
    assert breaches(dict(enumerate(events))) == []
    assert "emptied" in [kind_of(batch) for batch in iter_batches(b"".join(map(bytes, _files(homes[1]))))]


def _files(home):
    return [path.read_bytes() for path in sorted(home.glob("*.log"))]


@pytest.mark.parametrize("text", ["a=1", "a!1", "k-w-0.1:7=w-0.1:7", "w-0.1:7"])
def test_a_row_is_the_same_from_the_wire(text):
    value, key, headers = on_wire(text)
    assert from_wire(key, value, headers) == text


def test_a_row_whose_parts_contradict_each_other_is_none_that_was_sent():
    value, key, headers = on_wire(row("a", "1"))
    texts = {from_wire(key, None, headers), from_wire(b"b", value, headers), from_wire(key, b"x", headers)}
    assert not texts & {"a=1", "a!1", "b=1"}
    assert (key_of("a!1"), is_tombstone("a!1"), key_of("w:1")) == ("a", True, None)
