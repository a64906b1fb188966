"""Partition states in a real ZooKeeper: each is written over the version that was read, with who is eligible."""

from dataclasses import replace

import pytest
from kazoo.client import TransactionRequest
from zk.tree import HERE, STATE, TP, controller_of

from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.znodes import (
    PartitionState,
    TopicAssignment,
)

pytestmark = pytest.mark.integration


def test_a_state_is_written_only_over_the_version_that_was_read(zk):
    version = controller_of(zk)
    written = zk.states.write({TP: STATE}, version)
    assert written[TP].version == 0
    assert zk.states.read([TP, TopicPartition("t", 1)]) == {TP: STATE}
    again = PartitionState(1, 1, (1,), 1, written[TP].version)
    assert zk.states.write({TP: again}, version)[TP].version == 1
    assert zk.states.write({TP: again}, version) == {}, "a version that is past"
    assert zk.states.write({TP: STATE}, version) == {}, "made already"
    assert zk.states.read([TP])[TP].leader_epoch == 1


def test_whether_a_broker_has_registered_since_a_state_was_written_is_told(zk):
    version = controller_of(zk)
    before = zk.brokers.register(HERE._replace(id=8), 1)
    zk.states.write({TP: STATE}, version)
    found = zk.states.read([TP])[TP]
    since = zk.brokers.register(HERE._replace(id=9), 1)
    assert before < found.zxid < since


def states_beside(zk, *partitions):
    return zk.states.beside(zk.states.read(partitions))


def test_who_is_eligible_is_written_with_the_state_and_read_beside_it(zk):
    version = controller_of(zk)
    state = zk.states.write({TP: STATE}, version)[TP]
    assert states_beside(zk, TP) == {TP: STATE}
    for eligible, last_known in (((2, 3), ()), ((3,), (1,)), ((), (1,))):
        wanted = replace(state, eligible=eligible, last_known=last_known, min_isr=2)
        state = zk.states.write({TP: wanted}, version)[TP]
        found = states_beside(zk, TP)[TP]
        assert (found, found.min_isr, found.version) == (wanted, 2, state.version)
    state = zk.states.write({TP: replace(state, last_known=())}, version)[TP]
    assert states_beside(zk, TP) == {TP: STATE}, "what was written beside an older state counts no more"


def test_who_is_eligible_is_disbelieved_when_kafkas_controller_has_changed_the_state(zk):
    version = controller_of(zk)
    zk.states.write({TP: replace(STATE, eligible=(2,))}, version)
    path = znodes.partition_state_path(TP)
    zk.kazoo.set(path, znodes.encode_partition_state(STATE))
    assert states_beside(zk, TP) == {TP: STATE}


def test_a_conflict_leaves_what_stands_beside_the_state_as_it_is(zk):
    version = controller_of(zk)
    state = zk.states.write({TP: replace(STATE, eligible=(2,))}, version)[TP]
    assert zk.states.write({TP: replace(state, version=7, eligible=(3,))}, version) == {}
    assert states_beside(zk, TP)[TP].eligible == (2,)


def test_who_is_eligible_is_written_over_what_another_controller_wrote_and_goes_with_the_topic(connect):
    (old, _), (new, _) = connect(), connect()
    version = controller_of(old)
    old.states.write({TP: replace(STATE, eligible=(2,))}, version)
    state = new.states.read([TP])[TP]
    assert new.states.write({TP: replace(state, eligible=(3,))}, version)
    assert states_beside(old, TP)[TP].eligible == (3,)
    new.topics.forget("t", version)
    new.topics.create(TopicAssignment("t", {0: (1,)}), {})
    assert old.states.write({TP: STATE}, version)
    assert states_beside(old, TP) == {TP: STATE}
    old.topics.forget("t", version)
    new.topics.create(TopicAssignment("t", {0: (1,)}), {})
    assert new.states.write({TP: replace(STATE, eligible=(2,))}, version), "of the former topic it knew another"
    assert states_beside(old, TP)[TP].eligible == (2,)


def test_what_cannot_be_read_beside_a_state_makes_nobody_eligible(zk):
    version = controller_of(zk)
    zk.states.write({TP: replace(STATE, eligible=(2,))}, version)
    for data in (b"", b"{}", b'{"state_version":0,"min_isr":1,"eligible":["x"],"last_known":[]}'):
        zk.kazoo.set(znodes.eligible_path(TP), data)
        assert states_beside(zk, TP) == {TP: STATE}


def test_one_partitions_conflict_does_not_hold_up_the_others(zk):
    version = controller_of(zk)
    zk.states.write({TP: STATE}, version)
    others = [TopicPartition("t", number) for number in (1, 2)]
    written = zk.states.write({TP: STATE} | dict.fromkeys(others, STATE), version)
    assert sorted(written) == others


@pytest.fixture
def committed(monkeypatch):
    """How many operations each transaction has that is asked for, and how many bytes."""
    commit, found = TransactionRequest.commit_async, []

    def counted(self):
        size = sum(len(each.serialize()) for each in self.operations)
        found.append((len(self.operations), size))
        return commit(self)

    monkeypatch.setattr(TransactionRequest, "commit_async", counted)
    return found


def numbered(count, state=STATE, topic="t"):
    return {TopicPartition(topic, number): state for number in range(count)}


def test_states_are_written_together(zk, committed):
    version = controller_of(zk)
    states = numbered(650)
    written = zk.states.write(states, version)
    committed.clear()
    stale = {TopicPartition("t", 7): replace(STATE, version=7)}
    assert set(zk.states.write(written | stale, version)) == set(states) - set(stale)
    assert sorted(ops for ops, _ in committed) == [*[2] * 300, 51, 301, 301], (
        "of one that does not stand as expected, each again by itself"
    )


def test_what_stands_beside_states_is_written_together_with_them(zk, connect, committed):
    version = controller_of(zk)
    states = zk.states.write(numbered(400), version)
    for eligible in ((2, 3), (3,)):  # made, then written over
        wanted = {tp: replace(state, eligible=eligible, min_isr=2) for tp, state in states.items()}
        committed.clear()
        states = zk.states.write(wanted, version)
        assert sorted(ops for ops, _ in committed) == [201, 601]
        assert states_beside(zk, *states) == wanted
    other, _ = connect()
    committed.clear()
    wanted = {tp: replace(state, eligible=(2,)) for tp, state in list(states.items())[:5]}
    assert other.states.write(wanted, version).keys() == wanted.keys(), "who has not read what stands there finds out"
    assert max(ops for ops, _ in committed) == 11
    assert states_beside(zk, *wanted) == wanted


def test_no_transaction_has_more_bytes_than_zookeeper_takes_however_long_its_names_and_lists_are(zk, committed):
    version, name = controller_of(zk), "n" * 249
    zk.topics.create(TopicAssignment(name, {0: (1,)}), {})
    many = tuple(range((1 << 31) - 80, (1 << 31) - 1))
    wide = replace(STATE, isr=many, eligible=many, last_known=many, min_isr=9)
    states = zk.states.write(numbered(400, wide, name), version)
    assert len(states) == 400
    sizes = [size for ops, size in committed if ops > 2]
    assert len(sizes) > 2, "fewer than 300 in one"
    assert max(sizes) < 500_000
    assert states_beside(zk, *states) == numbered(400, wide, name)


def test_many_states_at_once(zk):
    _, version = zk.office.take(1, 5)
    zk.topics.create(TopicAssignment("t", {0: (1,)}), {})
    states = {TopicPartition("t", number): STATE for number in range(1200)}
    assert len(zk.states.write(states, version)) == 1200
    assert len(zk.states.read(states)) == 1200
    zk.topics.forget("t", version)
    assert (zk.topics.names(), zk.states.read(states)) == ([], {})


def test_a_topic_that_is_gone_is_not_brought_back_by_its_states(zk):
    version = controller_of(zk)
    assert zk.states.write({TopicPartition("gone", 0): STATE}, version) == {}
    assert zk.topics.names() == ["t"]
