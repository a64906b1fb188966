"""The checker against hand-made histories: a good one, and for each breach one that has it and nothing else."""

import copy
import json

import pytest
from histories.checker import check
from histories.history import READ_COMMITTED, READ_UNCOMMITTED, FinalLog, Recorder, load

COPIED = {"copiers": ("in", "out")}


def batch(offset, *values, kind="plain", producer=-1):
    last = offset + max(len(values), 1) - 1
    return {"offset": offset, "last": last, "producer": producer, "epoch": 0, "kind": kind, "values": list(values)}


def final_log(topic, *batches):
    return event("final log", topic=topic, partition=0, start=0, end=batches[-1]["last"] + 1, batches=list(batches))


def event(what, who="p", **fields):
    return {"what": what, "who": who, **fields}


def send(topic, value, txn=None, who="p"):
    return event("send", who, topic=topic, partition=0, value=value, txn=txn)


def sent(topic, value, offset):
    return event("sent", topic=topic, partition=0, value=value, offset=offset)


def read(topic, first, following, *records, isolation=READ_COMMITTED):
    place = {"topic": topic, "partition": 0, "isolation": isolation, "records": list(map(list, records))}
    return event("read", first=first, next=following, **place)


def owns(member, generation, *partitions):
    return event("owns", group="g", member=member, generation=generation, partitions=list(partitions))


def keep(name, offset, member="m", generation=1):
    who = {"group": "g", "member": member, "generation": generation}
    return event("keep", id=name, offsets={"out/0": offset}, **who)


def kept(name):
    return event("kept", id=name)


def observed(high, stable, topic="out"):
    return event("observed", topic=topic, partition=0, high=high, stable=stable)


def good():
    """Two records, one copied and committed, one copied and aborted and copied again; a reader of it all."""
    return {
        "send a": send("in", "a", who="w"),
        "send b": send("in", "b", who="w"),
        "sent a": sent("in", "a", 0),
        "sent b": sent("in", "b", 1),
        "copy a": send("out", "a@1", "t1", "c"),
        "seen in 1": observed(1, 0),
        "commit 1": event("commit", txn="t1"),
        "committed 1": event("committed", txn="t1"),
        "copy b": send("out", "b@2", "t2", "c"),
        "abort 2": event("abort", txn="t2"),
        "aborted 2": event("aborted", txn="t2"),
        "copy b again": send("out", "b@3", "t3", "c"),
        "sent copy": sent("out", "b@3", 4),
        "seen in 3": observed(5, 4),
        "committed 3": event("committed", txn="t3"),
        "own": owns("m", 1, "out/0"),
        "resumed": event("resumed", group="g", topic="out", partition=0, offset=0),
        "read 1": read("out", 0, 1, [0, "a@1"]),
        "keep 1": keep("k1", 1),
        "kept 1": kept("k1"),
        "own 2": owns("n", 2, "out/0"),
        "resumed 2": event("resumed", group="g", topic="out", partition=0, offset=1),
        "read 2": read("out", 1, 5, [4, "b@3"]),
        "read all": read("out", 0, 5, [0, "a@1"], [2, "b@2"], [4, "b@3"], isolation=READ_UNCOMMITTED),
        "seen all": observed(6, 6),
        "keep 2": keep("k2", 5, "n", 2),
        "kept 2": kept("k2"),
        "log in": final_log("in", batch(0, "a", "b")),
        "log out": final_log(
            "out",
            batch(0, "a@1", kind="transactional", producer=7),
            batch(1, kind="commit", producer=7),
            batch(2, "b@2", kind="transactional", producer=7),
            batch(3, kind="abort", producer=7),
            batch(4, "b@3", kind="transactional", producer=7),
            batch(5, kind="commit", producer=7),
        ),
        "offsets of g": event("final offsets", group="g", offsets={"out/0": 5}),
        "offsets of copiers": event("final offsets", group="copiers", offsets={"in/0": 2}),
    }


def breaches(history):
    """Their names, in a history whose events follow one another."""
    events = []
    for at, each in enumerate(history.values()):
        timed = {"at": 10 * at, **copy.deepcopy(each)}
        timed.setdefault("asked", timed["at"] - 1)
        events.append(timed)
    return sorted({breach.name for breach in check(events, COPIED)})


def changed(**events):
    """The good history with some events replaced, or left out (None), or added at its end; ``_`` for blanks."""
    history = good()
    for name, value in events.items():
        history[name.replace("_", " ")] = value
    return {name: value for name, value in history.items() if value is not None}


def log_out(*batches):
    return final_log("out", *batches)


OUT = good()["log out"]["batches"]


def test_nothing_is_wrong_with_a_good_history():
    assert breaches(good()) == []


def test_what_is_not_known_may_be_either():
    assert breaches(changed(committed_1=None, aborted_2=None, sent_a=None)) == []


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("lost write", changed(sent_a=sent("in", "a", 5))),
        ("lost write", changed(more=sent("in", "z", 9))),
        ("lost write", changed(more=sent("in", "z", -1))),
        ("reordered write", changed(send_a=send("in", "b", who="w"), send_b=send("in", "a", who="w"))),
        ("aborted read", changed(read_2=read("out", 1, 5, [2, "b@2"], [4, "b@3"]))),
        ("torn transaction", changed(committed_3=event("aborted", txn="t3"))),
        ("torn transaction", changed(aborted_2=event("committed", txn="t2"))),
        ("torn transaction", changed(more=send("out", "never@1", "t1", "c"))),
        ("inexact copy", changed(offsets_of_copiers=event("final offsets", group="copiers", offsets={"in/0": 1}))),
        ("inexact copy", changed(offsets_of_copiers=event("final offsets", group="copiers", offsets={}))),
        ("skipped read", changed(read_1=read("out", 0, 1))),
        ("skipped read", changed(read_2=read("out", 1, 5))),
        ("unseen write", changed(read_1=read("out", 0, 1, [0, "z@1"], [0, "a@1"]))),
        ("unseen write", changed(read_2=read("out", 0, 5, [4, "b@3"], [0, "a@1"]))),
        ("nonmonotonic offset", changed(resumed_2=event("resumed", group="g", topic="out", partition=0, offset=0))),
        ("nonmonotonic offset", changed(keep_2=keep("k2", 0, "n", 2))),
        ("nonmonotonic offset", changed(offsets_of_g=event("final offsets", group="g", offsets={"out/0": 1}))),
        ("nonmonotonic offset", changed(offsets_of_g=event("final offsets", group="g", offsets={}))),
        ("shared partition", changed(own_2=owns("n", 1, "out/0"))),
        ("shared partition", changed(keep_2=keep("k2", 5, "n", 1))),
        ("unstable read", changed(seen_in_1=observed(1, 1))),
        ("unstable read", changed(seen_in_3=observed(5, 6))),
        ("unstable read", changed(seen_in_3=observed(5, 5))),
        ("watermark backwards", changed(more=observed(5, 4))),
        ("stale read", changed(seen_all=None, more=observed(1, 1, "in"))),
    ],
)  # fmt: skip
def test_each_breach_is_found(name, history):
    assert name in breaches(history)


def states(leader, epoch, version, isr=(0, 1, 2)):
    return event("states", states={"out/0": [leader, epoch, list(isr), version]})


def replica(broker, **fields):
    same = {"start": 0, "end": 6, "digest": "d", "epochs": [[0, 0]], "producers": {}, "aborted": []}
    return event("replica", topic="out", partition=0, broker=broker, **same | fields)


def test_epochs_that_rise_contradict_nobody():
    assert breaches(changed(a=states(0, 0, 0), b=states(0, 0, 1, (0, 1)), c=states(1, 1, 2), d=states(-1, 2, 3))) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (states(0, 1, 1), states(0, 0, 2)),
        (states(0, 1, 2), states(0, 1, 1)),
        (states(0, 1, 1), states(1, 1, 2)),
        (states(0, 1, 1), states(0, 1, 1, (0, 1))),
        (states(0, 1, 1), states(0, 2, 2, (1, 2))),
        (states(0, 1, 1), states(0, 2, 2, ())),
    ],
)
def test_epochs_that_contradict_are_found(first, second):
    assert breaches(changed(a=first, b=second)) == ["contradicting epochs"]


def test_batches_of_an_older_epoch_behind_a_newer_one_are_found():
    batches = [{**batch(0, "a"), "leader epoch": 4}, {**batch(1, "b"), "leader epoch": 3}]
    assert "contradicting epochs" in breaches(changed(log_in=final_log("in", *batches)))


@pytest.mark.parametrize("differs", [{"digest": "e"}, {"end": 5}, {"epochs": []}, {"producers": {"7": []}}])
def test_replicas_that_differ_are_found(differs):
    assert breaches(changed(a=replica(0), b=replica(1))) == []
    assert breaches(changed(a=replica(0), b=replica(1, **differs))) == ["unequal replicas"]


def told_end(offset, epoch=3):
    return event("end", topic="in", partition=0, epoch=epoch, offset=offset)


def of_in(epoch):
    return event("states", states={"in/0": [0, epoch, [0], 1]})


def test_an_end_below_what_was_acknowledged_is_found_where_the_leader_was_in_office():
    assert breaches(changed(told=told_end(1), after=of_in(3))) == ["stale read"]
    assert breaches(changed(told=told_end(2), after=of_in(3))) == []
    assert breaches(changed(told=told_end(1), after=of_in(4))) == []


@pytest.mark.parametrize(("first_life", "found"), [(True, ["unstable read"]), (False, [])])
def test_a_broker_that_started_again_need_not_know_of_a_marker_beyond_its_high_watermark(first_life, found):
    seen = observed(1, 1) | {"term": "life", "first life": first_life}
    assert breaches(changed(seen_in_1=seen)) == found


@pytest.mark.parametrize(("marks", "found"), [((1, 1), []), ((5, 4), ["watermark backwards"])])
def test_one_that_started_again_may_hear_anew_that_a_transaction_is_open_whose_marker_was_not_committed(marks, found):
    """It follows another leader, and has cut the marker off."""
    life = {"term": "life", "first life": False}
    assert breaches(changed(seen_in_1=observed(*marks) | life, more=observed(5, 0) | life)) == found


def test_a_watermark_may_be_lower_in_another_life():
    assert breaches(changed(more=observed(5, 4) | {"term": "life 2"})) == []


def hasty(value, offset):
    return {"send": send("in", value) | {"acks": "1"}, "sent": sent("in", value, offset) | {"acks": "1"}}


def test_what_one_replica_acknowledged_may_be_lost_with_its_leader_only():
    lost = changed(**hasty("c", 2))
    assert breaches(lost) == ["lost write"]
    moved = {"before": of_in(3), **lost, "after": event("states", states={"in/0": [1, 4, [1], 2]})}
    assert breaches(moved) == []


def test_what_one_replica_acknowledged_may_be_there_twice():
    history = changed(log_in=final_log("in", batch(0, "a", "b", "c", "c")), **hasty("c", 2))
    assert breaches(history) == []


def test_a_record_written_twice_is_found():
    twice = changed(log_in=final_log("in", batch(0, "a", "b", "b")))
    assert "duplicate write" in breaches(twice)


def test_two_copies_of_one_record_are_found():
    more = [batch(6, "a@9", kind="transactional", producer=8), batch(7, kind="commit", producer=8)]
    assert breaches(changed(log_out=log_out(*OUT, *more))) == ["inexact copy"]


def test_a_transaction_left_open_is_found():
    assert "torn transaction" in breaches(changed(log_out=log_out(*OUT[:-1])))


def test_a_transaction_committed_here_and_aborted_there_is_found():
    history = changed(
        elsewhere=send("in", "x@1", "t1", "c"),
        log_in=final_log(
            "in",
            batch(0, "a", "b"),
            batch(2, "x@1", kind="transactional", producer=7),
            batch(3, kind="abort", producer=7),
        ),
    )
    assert breaches(history) == ["torn transaction"]


def test_a_watermark_may_seem_to_go_back_where_questions_overlap():
    assert breaches(changed(more=observed(5, 4) | {"asked": 0})) == []


def test_transactions_of_several_producers_are_told_apart():
    log = FinalLog(
        final_log(
            "t",
            batch(0, "a", kind="transactional", producer=1),
            batch(1, "b", kind="transactional", producer=2),
            batch(2, "plain"),
            batch(3, kind="abort", producer=1),
            batch(4, "c", kind="transactional", producer=1),
            batch(5, kind="commit", producer=2),
        )
    )
    assert [(each.value, each.outcome) for each in log.entries] == [
        ("a", "aborted"),
        ("b", "committed"),
        ("plain", "plain"),
        ("c", "open"),
    ]
    assert log.between(0, 4, READ_COMMITTED) == [[1, "b"], [2, "plain"]]
    assert log.between(0, 4, READ_UNCOMMITTED) == [[0, "a"], [1, "b"], [2, "plain"]]


def test_a_history_survives_its_writer(tmp_path):
    Recorder(tmp_path, "one")("note", text="first")
    Recorder(tmp_path, "two")("note", text="second")
    Recorder(tmp_path, "one")("note", text="third")
    with open(tmp_path / "one.jsonl", "ab") as torn:
        torn.write(json.dumps({"what": "cut"}).encode()[:-3])
    assert [(each["who"], each["text"]) for each in load(tmp_path)] == [
        ("one", "first"),
        ("two", "second"),
        ("one", "third"),
    ]
