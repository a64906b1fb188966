"""What the second version's clients, and those of a two-phase commit, are told in each state; the coordinator's end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from txn.test_machine import ALIVE, NOW, A, B, held, request
from txn.test_runtime import HOME, ID, V2, Scene, play  # noqa: F401 (a fixture)

from sparklog.errors import ErrorCode
from sparklog.testing.steps import finish
from sparklog.txn.machine import Decision, EndRequest, InitRequest, TransactionMachine, TransactionSettings
from sparklog.txn.markers import Marker
from sparklog.txn.records import read_value, value_of
from sparklog.txn.state import COMPLETION, LAST_EPOCH, NO_TIMEOUT_MS, HeldTransaction, Producer, TransactionState

S = TransactionState
E = ErrorCode
MACHINE = TransactionMachine(TransactionSettings(900_000, 10_000, allows_two_phase=True))
CURRENT, BEFORE = Producer(7, 3), Producer(7, 2)
ENDING = {
    # state, commit, by the client of now; what it is told, or the state that is written
    (S.EMPTY, True, True): E.INVALID_TXN_STATE,
    (S.EMPTY, False, True): S.PREPARE_ABORT,
    (S.EMPTY, True, False): E.PRODUCER_FENCED,
    (S.EMPTY, False, False): E.PRODUCER_FENCED,
    (S.ONGOING, True, True): S.PREPARE_COMMIT,
    (S.ONGOING, False, True): S.PREPARE_ABORT,
    (S.ONGOING, True, False): E.PRODUCER_FENCED,
    (S.ONGOING, False, False): E.PRODUCER_FENCED,
    (S.PREPARE_COMMIT, True, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, True, False): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False, False): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, True, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, False, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, True, False): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, False, False): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_COMMIT, True, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False, True): S.PREPARE_ABORT,
    (S.COMPLETE_COMMIT, True, False): E.NONE,
    (S.COMPLETE_COMMIT, False, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, True, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False, True): S.PREPARE_ABORT,
    (S.COMPLETE_ABORT, True, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False, False): E.NONE,
}


def second(state: S, **changes: object) -> HeldTransaction:
    return held(state, **({"client_version": V2, "last_producer_id": 7, "last_epoch": 2} | changes))


def end(of: HeldTransaction, producer: Producer, *, commit: bool, fresh_id: int | None = None) -> Decision:
    return MACHINE.end(of, EndRequest(producer, commit, V2), fresh_id, now_ms=NOW)


@pytest.mark.parametrize(("state", "commit", "by_the_client"), ENDING)
def test_ending(state: S, commit: bool, by_the_client: bool) -> None:
    producer = CURRENT if by_the_client else BEFORE
    error, record, _ = end(second(state), producer, commit=commit)
    assert (record.state if record else error) == ENDING[state, commit, by_the_client]
    if record:
        assert (record.producer, record.client) == (Producer(7, 4), Producer(7, 4))
        assert (record.last_producer_id, record.last_epoch, record.client_version) == (7, 3, V2)
        assert (record.start_ms, record.update_ms) == (90_000 if state is S.ONGOING else NOW, NOW)


@pytest.mark.parametrize("state", ALIVE)
def test_an_older_epoch_still_and_another_id_are_refused(state: S) -> None:
    assert end(second(state), Producer(7, 1), commit=False).error is E.PRODUCER_FENCED
    assert end(second(state), Producer(9, 3), commit=False).error is E.INVALID_PRODUCER_ID_MAPPING
    assert end(second(state, last_epoch=-1), Producer(7, -1), commit=False).error is E.PRODUCER_FENCED


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    worn = second(S.ONGOING, epoch=LAST_EPOCH - 1)
    last = Producer(7, LAST_EPOCH - 1)
    assert end(worn, last, commit=True).needs_producer_id
    prepared = end(worn, last, commit=True, fresh_id=99).record
    assert prepared is not None
    assert (prepared.producer, prepared.client) == (Producer(7, LAST_EPOCH), Producer(99, 0))
    waiting = HeldTransaction(prepared)
    assert MACHINE.add_partitions(waiting, Producer(99, 0), [A], NOW, V2).error is E.CONCURRENT_TRANSACTIONS
    assert end(waiting, last, commit=True).error is E.CONCURRENT_TRANSACTIONS
    complete = MACHINE.complete(prepared, NOW)
    assert complete.producer == complete.client == Producer(99, 0)
    assert end(HeldTransaction(complete), last, commit=True) == (E.NONE, None, False)


def test_the_last_epoch_that_a_producer_is_given() -> None:
    worn = second(S.ONGOING, epoch=LAST_EPOCH - 2)
    prepared = end(worn, Producer(7, LAST_EPOCH - 2), commit=True).record
    assert prepared is not None
    assert prepared.client == Producer(7, LAST_EPOCH - 1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_clients_own_end_that_was_lost_fences_nobody(commit: bool) -> None:
    ending = second(S.ONGOING)
    record = end(ending, CURRENT, commit=commit).record
    assert record is not None
    ending.begin(record)
    ending.failed()
    assert end(ending, CURRENT, commit=commit).record == record


def test_what_is_left_after_a_record_was_lost_and_after_an_end_is_what_the_log_says() -> None:
    """So a coordinator that goes on from memory and one that reads the log answer alike."""
    fenced = second(S.ONGOING)
    fenced.begin(MACHINE.init(fenced, request(), None, NOW).record)
    fenced.failed()
    kept = MACHINE.init(second(S.ONGOING), keeping(), None, NOW).record
    assert kept is not None
    ended = end(HeldTransaction(kept), kept.client, commit=True).record
    assert ended is not None
    taken_back = kept.told(kept.producer)._replace(last_producer_id=7, last_epoch=2)
    for each in (fenced.current._replace(last_producer_id=-1), taken_back, ended, MACHINE.complete(ended, NOW)):
        assert read_value("id", value_of(each) or b"") == each


def test_a_client_of_the_second_version_survives_the_timeout_of_its_transaction() -> None:
    aborted = MACHINE.time_out(second(S.ONGOING, last_producer_id=6), 150_001)
    assert aborted is not None
    assert aborted.update_ms == 150_001
    assert end(HeldTransaction(aborted), CURRENT, commit=False).error is E.CONCURRENT_TRANSACTIONS
    complete = HeldTransaction(MACHINE.complete(aborted, NOW))
    assert end(complete, CURRENT, commit=True).error is E.INVALID_TXN_STATE
    assert end(complete, CURRENT, commit=False) == (E.NONE, None, False)
    assert complete.current.client == Producer(7, 4)


@pytest.mark.parametrize(
    ("epoch", "answer"), [(LAST_EPOCH - 2, E.CONCURRENT_TRANSACTIONS), (LAST_EPOCH - 1, E.PRODUCER_FENCED)]
)
def test_it_survives_as_long_as_there_is_an_epoch_to_give_it(epoch: int, answer: ErrorCode) -> None:
    aborted = MACHINE.time_out(second(S.ONGOING, epoch=epoch), 150_001)
    assert aborted is not None
    assert aborted.client == Producer(7, epoch + 1)
    assert end(HeldTransaction(aborted), Producer(7, epoch), commit=False).error is answer


def test_one_that_was_succeeded_does_not() -> None:
    aborted = MACHINE.init(second(S.ONGOING), request(), None, NOW).record
    assert aborted is not None
    for each in (aborted, MACHINE.complete(aborted, NOW)):
        assert end(HeldTransaction(each), CURRENT, commit=False).error is E.PRODUCER_FENCED


def keeping(expected: Producer | None = None, two_phase: bool = True) -> InitRequest:
    return InitRequest("id", 5000, expected, two_phase=two_phase, keeps=True)


def test_two_phases_must_be_allowed_and_know_no_timeout() -> None:
    forbidding = TransactionMachine(TransactionSettings(900_000, 10_000))
    asked = InitRequest("id", 0, two_phase=True)
    assert forbidding.init_error(asked) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert MACHINE.init_error(asked) is E.NONE
    record = MACHINE.init(None, asked, 99, NOW).record
    assert record is not None
    assert record.timeout_ms == NO_TIMEOUT_MS
    assert MACHINE.time_out(second(S.ONGOING, timeout_ms=NO_TIMEOUT_MS), 1 << 60) is None


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_successor_keeps_what_is_open_and_ends_it(commit: bool, version: int) -> None:
    kept = MACHINE.init(second(S.ONGOING), keeping(), None, NOW).record
    assert kept is not None
    assert (kept.state, kept.producer, kept.client, kept.partitions) == (S.ONGOING, CURRENT, Producer(7, 4), {A})
    again = MACHINE.init(HeldTransaction(kept), keeping(), None, NOW).record
    assert again is not None
    assert (again.producer, again.client) == (CURRENT, Producer(7, 5))
    holder = HeldTransaction(again)
    for zombie in (CURRENT, kept.client):
        assert end(holder, zombie, commit=commit).error is E.PRODUCER_FENCED
        assert MACHINE.verify(holder, zombie, A) is E.PRODUCER_FENCED
    assert MACHINE.add_partitions(holder, again.client, [B], NOW, V2).error is E.INVALID_TXN_STATE
    assert MACHINE.verify(holder, again.client, A) is E.INVALID_TXN_STATE
    prepared = MACHINE.end(holder, EndRequest(again.client, commit, type(V2)(version)), None, now_ms=NOW).record
    assert prepared is not None
    assert prepared.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert prepared.producer == (Producer(7, 4) if version else CURRENT)
    assert prepared.client_version == version
    assert MACHINE.complete(prepared, NOW).producer == Producer(7, 6 if version else 5)


@pytest.mark.parametrize("epoch", [3, LAST_EPOCH - 1])
@pytest.mark.parametrize("read_back", [False, True])
def test_whose_transaction_was_kept_does_not_go_on_when_it_has_ended(epoch: int, read_back: bool) -> None:
    """Neither with the coordinator that let it be kept, nor with one that knows what the log says."""
    kept = MACHINE.init(second(S.ONGOING, epoch=epoch), keeping(), 99, NOW).record
    assert kept is not None
    if read_back:
        kept = read_value("id", value_of(kept) or b"")
    prepared = MACHINE.end(HeldTransaction(kept), EndRequest(kept.client, commit=True), None, now_ms=NOW).record
    assert prepared is not None
    ended = HeldTransaction(MACHINE.complete(prepared, NOW))
    assert MACHINE.init(ended, request(Producer(7, epoch)), None, NOW).error is E.PRODUCER_FENCED
    assert MACHINE.init(ended, request(kept.client), None, NOW).error is E.NONE


def test_a_successor_that_keeps_nothing_aborts_what_another_kept() -> None:
    kept = MACHINE.init(second(S.ONGOING), keeping(), None, NOW).record
    assert kept is not None
    error, aborted, _ = MACHINE.init(HeldTransaction(kept), request(), None, NOW)
    assert aborted is not None
    assert (error, aborted.state, aborted.producer) == (E.CONCURRENT_TRANSACTIONS, S.PREPARE_ABORT, Producer(7, 4))
    assert end(HeldTransaction(aborted), kept.client, commit=True).error is E.PRODUCER_FENCED
    assert MACHINE.complete(aborted, NOW).producer == Producer(7, 5)


def test_keeping_under_a_worn_id_costs_a_new_one() -> None:
    worn = second(S.ONGOING, epoch=LAST_EPOCH - 1)
    assert MACHINE.init(worn, keeping(), None, NOW).needs_producer_id
    kept = MACHINE.init(worn, keeping(), 99, NOW).record
    assert kept is not None
    assert (kept.producer, kept.client) == (Producer(7, LAST_EPOCH - 1), Producer(99, 0))
    prepared = end(HeldTransaction(kept), Producer(99, 0), commit=True).record
    assert prepared is not None
    assert (prepared.producer, prepared.client) == (Producer(7, LAST_EPOCH), Producer(99, 1))


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_where_nothing_is_open_there_is_nothing_to_keep(state: S) -> None:
    record = MACHINE.init(second(state), keeping(), None, NOW).record
    assert record is not None
    assert (record.state, record.client, record.is_kept) == (S.EMPTY, Producer(7, 4), False)


def test_only_the_client_of_now_keeps_by_name() -> None:
    assert MACHINE.init(second(S.ONGOING), keeping(BEFORE), None, NOW).error is E.PRODUCER_FENCED
    assert MACHINE.init(second(S.ONGOING), keeping(CURRENT), None, NOW).error is E.NONE


def test_an_abort_whose_record_was_lost_leaves_the_transaction_whose_it_was() -> None:
    """Else whoever keeps it next would not know it again, and abort what is committed elsewhere."""
    prepared = second(S.ONGOING)
    prepared.begin(MACHINE.init(prepared, request(), None, NOW).record)
    prepared.failed()
    kept = MACHINE.init(prepared, keeping(), None, NOW).record
    assert kept is not None
    assert (kept.producer, kept.client) == (CURRENT, Producer(7, 5))


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch(play: Any, commit: bool) -> None:  # noqa: F811
    complete = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT

    async def body(scene: Scene) -> None:
        await scene.producer()
        for epoch in range(3):
            producer = Producer(100, epoch)
            assert await scene.txns.add_partitions(ID, producer, [A], V2) is E.NONE
            following = Producer(100, epoch + 1)
            assert await scene.end2(producer, commit=commit) == (E.NONE, following)
            await scene.settle(complete)
            assert await scene.end2(producer, commit=commit) == (E.NONE, following)
            assert scene.markers.written[-1] == (Marker(following, commit, 5, raises_epoch=True), {A})
            assert scene.txns.verify(ID, producer, A) is E.PRODUCER_FENCED

    play(body)


def test_the_coordinator_knows_how_its_client_ends_when_time_is_up(play: Any) -> None:  # noqa: F811
    async def body(scene: Scene) -> None:
        producer = await scene.producer()
        assert await scene.txns.add_partitions(ID, producer, [A], V2) is E.NONE
        scene.clock.advance(10.002)
        finish(scene.txns.abort_timed_out())
        await scene.settle(S.COMPLETE_ABORT)
        assert await scene.end2(producer, commit=False) == (E.NONE, Producer(100, 1))

    play(body)


def test_a_worn_epoch_ends_in_a_new_id(play: Any) -> None:  # noqa: F811
    async def body(scene: Scene) -> None:
        await scene.opened()
        found = scene.txns._find(ID)
        assert found is not None
        found.current = found.current._replace(epoch=LAST_EPOCH - 1)
        assert await scene.end2(Producer(100, LAST_EPOCH - 1), commit=True) == (E.NONE, Producer(101, 0))
        await scene.settle(S.COMPLETE_COMMIT)
        scene = await scene.restarted()
        assert await scene.end2(Producer(100, LAST_EPOCH - 1), commit=True) == (E.NONE, Producer(101, 0))
        assert await scene.txns.add_partitions(ID, Producer(101, 0), [A], V2) is E.NONE
        await scene.txns.close()

    play(body)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("steps", range(1, 6))
def test_whatever_of_the_log_is_left_of_a_kept_transaction(play: Any, steps: int, commit: bool) -> None:  # noqa: F811
    """The log cut after each record: until it is ended it is open, however long that takes; then it ends so."""

    async def body(scene: Scene) -> None:
        asked = InitRequest(ID, 0, two_phase=True)
        producer = (await scene.txns.init_producer_id(asked)).producer
        await scene.txns.add_partitions(ID, producer, [A, B], V2)
        holder = await scene.txns.init_producer_id(asked._replace(keeps=True))
        assert holder == (E.NONE, Producer(100, 1), producer)
        assert await scene.end2(holder.producer, commit=commit) == (E.NONE, Producer(100, 2))
        await scene.settle(S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        del scene.log.logs[HOME][steps:]
        scene.markers.written.clear()
        scene = await scene.restarted()
        scene.clock.advance(1e6)
        finish(scene.txns.abort_timed_out())
        await asyncio.sleep(1)
        if steps in (2, 3):
            assert scene.state is S.ONGOING
            holder = await scene.txns.init_producer_id(asked._replace(keeps=True))
            assert holder.ongoing == producer
            assert (await scene.end2(holder.producer, commit=commit)).error is E.NONE
        done = {1: S.EMPTY}.get(steps, S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        await scene.settle(done)
        ended = [(marker.producer, marker.commit, tps) for marker, tps in scene.markers.written]
        assert ended == ([(Producer(100, 1), commit, {A, B})] if steps in (2, 3, 4) else [])
        await scene.txns.close()

    play(body)


def test_prepared_means_one_way_to_go_in_this_version_too() -> None:
    for state in COMPLETION:
        prepared = second(state).current
        assert MACHINE.complete(prepared, NOW).state is COMPLETION[state]
