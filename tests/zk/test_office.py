"""The office of controller in a real ZooKeeper: one holder, one epoch a term, and nothing written by the deposed."""

import threading

import pytest
from zk.tree import STATE, TP, controller_of

from sparklog.errors import CoordinationError
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.office import Term
from sparklog.zk.znodes import (
    TopicAssignment,
)

pytestmark = pytest.mark.integration


def test_one_controller_at_a_time_each_with_a_higher_epoch(connect):
    (one, _), (two, _) = connect(), connect()
    first = one.office.take(1, 5)
    assert two.office.take(2, 5) is None
    assert two.office.holder() == 1
    one.close()
    second = two.office.take(2, 6)
    assert second[0] == first[0] + 1
    assert second[1] > first[1]
    assert two.office.holder() == 2


def test_many_candidates_at_once_elect_one(connect):
    clients = [connect()[0] for _ in range(4)]
    results, start = [None] * 4, threading.Barrier(4)

    def stand(number):
        start.wait()
        results[number] = clients[number].guarded(clients[number].office.take, number, 5)

    threads = [threading.Thread(target=stand, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result is not None for result in results) == 1
    assert results[clients[0].office.holder()] is not None


def test_the_office_is_taken_from_the_controller_that_is_meant_and_no_other(connect):
    (one, _), (two, _) = connect(), connect()
    first, _ = one.office.take(1, 5)
    assert two.office.take(2, 5, Term(1, first - 1)) is None
    assert two.office.take(2, 5, Term(1, first))[0] == first + 1
    assert two.office.read() == Term(2, first + 1)
    assert one.office.take(1, 6, Term(1, first)) is None
    assert not one.office.give_up()
    two.office.give_up()
    assert one.office.take(1, 6, Term(2, first + 1)) is None  # it is vacant: to be had without that


def test_the_controllers_coming_and_going_is_watched(connect):
    (one, _), (two, _) = connect(), connect()
    for change in (lambda: one.office.take(1, 5), one.close):
        changed = threading.Event()
        two.office.holder(changed.set)
        change()
        assert changed.wait(60)


def test_the_epochs_of_kafkas_controllers_are_known(zk):
    assert zk.office.foreign_terms(1) == range(0), "nothing is known of who was in office before the first of ours"
    for epoch, foreign in ((1, []), (2, []), (6, [3, 4, 5]), (7, [])):
        if epoch > 1:
            zk.kazoo.set(znodes.CONTROLLER_EPOCH, str(epoch - 1).encode())
        assert zk.office.take(1, 0)[0] == epoch
        assert list(zk.office.foreign_terms(epoch)) == foreign
        assert list(zk.office.foreign_terms(epoch + 1)) == [], "of another term nothing is told"
        assert zk.office.give_up()
    zk.kazoo.set(znodes.TERMS, b"[]")
    assert zk.office.take(1, 0)[0] == 8
    assert list(zk.office.foreign_terms(8)) == []


def test_the_office_is_told_with_its_epoch(connect):
    (one, _), (two, _) = connect(), connect()
    assert two.office.read() == Term(-1, -1)
    for epoch in (1, 2):
        one.office.take(7, 5)
        assert two.office.read() == Term(7, epoch)
        one.office.give_up()
        assert two.office.read() == Term(-1, epoch)


def test_a_stale_controller_is_refused(connect):
    (old, _), (new, _) = connect(), connect()
    old_version = controller_of(old)
    old.kazoo.delete("/controller")
    assert new.office.take(2, 6)
    with pytest.raises(CoordinationError, match="epoch is stale"):
        old.states.write({TP: STATE}, old_version)
    assert new.states.read([TP]) == {}


def test_a_deposed_controller_writes_nothing_at_all(connect):
    (old, _), (new, _) = connect(), connect()
    old_version = controller_of(old)
    old.states.write({TP: STATE}, old_version)
    new.topics.request_deletion("t")
    new.topics.request_deletion("never")
    new.brokers.report_log_dir_failure(1)
    assert old.office.give_up()
    assert new.office.take(2, 6)
    tree = new.topics._below("")
    for write in (
        lambda: old.topics.forget("t", old_version),
        lambda: old.topics.forget_deletion("never", old_version),
        lambda: old.brokers.forget_log_dir_events(old.brokers.log_dir_events(), old_version),
        lambda: old.states.write({TopicPartition("t", 1): STATE, TopicPartition("gone", 0): STATE}, old_version),
        lambda: old.topics.add_partitions(TopicAssignment("t", dict.fromkeys(range(5), (1,))), old_version),
    ):
        with pytest.raises(CoordinationError, match="another controller"):
            write()
    assert not old.office.give_up()
    assert new.topics._below("") == tree
