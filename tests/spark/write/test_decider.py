"""Decisions against real brokers: each step of a decider, cut short, raced and taken again. No Spark."""

import dataclasses
import gzip
import itertools
import logging
import random
import re
import shlex
import uuid
from collections import Counter
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from spark.write.committed import values_in

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.admin.transactions import TransactionListing
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, BatchRefused, CorruptRecord, DataSourceError, ErrorCode
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.partitioning import partition_for
from sparklog.spark.write import decider as decider_module
from sparklog.spark.write import decision_index, decisions
from sparklog.spark.write.attempt import AttemptResult, write_prepared
from sparklog.spark.write.attempt_names import AttemptName, ids_prefix, unnamed_scope
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import NO_BATCH, PARTITIONS, Decision, DecisionLog, Scope
from sparklog.spark.write.open_writes import abandoned, declare_last_batch, finish_abandoned, finish_scope, open_writes
from sparklog.spark.write.options import BY_COLUMN, WriteOptions
from sparklog.spark.write.task_attempt import TaskAttempt, stream_attempt
from sparklog.spark.write.writer import Sink, SparklogStreamWriter, SparklogWriter, TaskCommitMessage
from sparklog.structs import DECISIONS_TOPIC, IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(metadata):
    with Admin(metadata.config) as admin:
        yield admin


@pytest.fixture
def scope():
    return Scope(f"scope/{uuid.uuid4().hex} with.odd:signs")


@pytest.fixture
def decider(metadata, scope):
    """Makes deciders of this test's scope, or of another; all are closed in the end."""
    made = []

    def make(of=scope, kind=Decider, **options):
        made.append(kind(metadata.config, of, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def tp(make_topic):
    return TopicPartition(make_topic(), 0)


@pytest.fixture
def attempt(metadata, admin, scope, tp):
    """Writes a row as an attempt of the scope does, and leaves its transaction open."""
    numbers = itertools.count()

    def write(value, batch=0, of=scope, run="run", partition=None):
        partition = next(numbers) if partition is None else partition
        name = AttemptName(of.name, run, partition, 0, batch % 2)
        transaction = admin.init_prepared(name.transactional_id, 60_000)
        builder = RecordBatchBuilder(is_transactional=True)
        builder.append(SystemClock().now_ms(), None, value)
        add = admin.add_to_prepared
        with TransactionalBatchProducer(metadata, transaction, lambda at: add(transaction, at)) as producer:
            producer.send(tp, bytearray(builder.build()))
        return transaction

    return write


@pytest.fixture
def visible(metadata, tp):
    """The committed values, when nothing is open any more."""
    return lambda: values_in(metadata, tp)


def test_what_is_decided_is_committed_and_the_rest_aborted(decider, attempt, visible):
    first, second, orphan = attempt(b"a"), attempt(b"b"), attempt(b"orphan")
    decided = decider().commit(0, [second, first])
    assert decided == Decision(0, tuple(sorted([first, second])), aborted=(orphan,))
    assert visible() == [b"a", b"b"]


def test_the_first_decision_counts(decider, attempt, visible):
    first, second = attempt(b"first"), attempt(b"second")
    assert decider().commit(0, [first]).transactions == (first,)
    assert decider().commit(0, [second]).transactions == (first,)
    assert visible() == [b"first"]


def test_a_batch_before_the_last_is_over(decider, attempt, visible):
    decider().commit(3, [attempt(b"three", batch=3)])
    assert decider().commit(2, [attempt(b"two", batch=2)]).batch == 3
    assert visible() == [b"three"]


def test_batches_follow_one_another(decider, attempt, visible):
    one = decider()
    for batch in range(5):
        one.commit(batch, [attempt(b"%d" % batch, batch)])
    assert visible() == [b"%d" % batch for batch in range(5)]


@pytest.fixture
def asked(monkeypatch):
    """What asynchronous clients ask from now on: (api, request), in order."""
    questions = []
    ask = AsyncConnection.request

    async def noted(self, api, build, **options):
        def seen(version):
            request = build(version)
            questions.append((api, request))
            return request

        return await ask(self, api, seen, **options)

    monkeypatch.setattr(AsyncConnection, "request", noted)
    return questions


def test_a_run_that_goes_on_asks_for_its_own_batch_alone(decider, attempt, asked, visible):
    """Spark begins a batch when the one before is committed: nothing of that is ended, or looked for, again."""
    before = [attempt(b"a"), attempt(b"b"), attempt(b"c")]
    decider().commit(0, before, "run")
    mine = [attempt(b"d", 1), attempt(b"e", 1)]
    asked.clear()
    decider().commit(1, mine, "run")
    ends = [request.transactional_id for api, request in asked if api is ApiKey.END_TXN]
    assert {*ends} - {each.transactional_id for each in mine} == {ends[0]}  # the decider's own
    described = [request.transactional_ids for api, request in asked if api is ApiKey.DESCRIBE_TRANSACTIONS]
    assert sorted(described) == sorted([each.transactional_id] for each in mine)
    counts = Counter(api for api, _ in asked)
    assert counts[ApiKey.LIST_TRANSACTIONS] == 1
    assert counts[ApiKey.FIND_COORDINATOR] <= 3  # the decider's twice, of its id and of its group; the last decision's
    assert visible() == [b"a", b"b", b"c", b"d", b"e"]


def test_an_attempt_adds_its_partitions_with_one_request(metadata, decider, make_topic, scope, asked):
    rows = pa.record_batch({"value": [b"%d" % number for number in range(30)]})
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic(3, "-three")}
    written, transaction, topics = write_prepared(
        WriteOptions.for_batch(given), TaskAttempt(scope.name, "run", 0, 0, 0), [rows, rows]
    )
    assert written == 60
    assert Counter(api for api, _ in asked)[ApiKey.ADD_PARTITIONS_TO_TXN] == 1
    assert [name for name, _ in topics] == [given["topic"]]
    assert decider().commit(0, [transaction], topics=topics).transactions == (transaction,)


@pytest.mark.parametrize("run", [None, "another"])
def test_another_run_finishes_what_was_decided_first(decider, attempt, visible, run):
    named = attempt(b"named")
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    decider().commit(1, [attempt(b"one", 1, run="another")], run)
    assert visible() == [b"named", b"one"]


def test_batches_without_tasks_are_passed_over(metadata, decider, attempt, visible, scope, caplog):
    """Spark tells the sink of such a batch without a word of the query: ids come again before the next decision."""
    writer = SparklogStreamWriter(WriteOptions(metadata.config, "unused"), StructType().add("value", "binary"))
    for batch, value in ((0, b"zero"), (2, b"two"), (4, b"four")):
        task = TaskAttempt(scope.name, "run", batch, 0, 0)
        writer.commit([TaskCommitMessage(1, task, attempt(value, batch, partition=0)), None], batch)
        writer.commit([], batch + 1)
    assert visible() == [b"zero", b"two", b"four"]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_ids_that_an_undecided_batch_has_used_again_lose_nothing(decider, attempt, visible, caplog):
    """Batch 1 had no tasks, and the driver died in batch 2: batch 0 was finished, and that was noted."""
    decider().commit(0, [attempt(b"zero", partition=0)], "run")
    attempt(b"undecided", 2, partition=0)
    decider().commit(2, [attempt(b"two", 2, run="next")], "next")
    assert visible() == [b"zero", b"two"]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_decision_is_finished_though_its_replay_has_no_tasks(metadata, decider, attempt, visible, scope):
    named = attempt(b"named")
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    writer = SparklogStreamWriter(WriteOptions(metadata.config, "unused"), StructType().add("value", "binary"))
    writer.commit([], 0)
    task = TaskAttempt(scope.name, "again", 1, 0, 0)
    writer.commit([TaskCommitMessage(1, task, attempt(b"one", 1, run="again"))], 1)
    assert visible() == [b"named", b"one"]


def test_what_an_abort_without_messages_leaves_is_aborted_by_the_next_run(metadata, attempt, visible, scope):
    """No task has come to its end, so the sink is not told whose batch it is."""
    attempt(b"left")
    writer = SparklogStreamWriter(WriteOptions(metadata.config, "unused"), StructType().add("value", "binary"))
    writer.abort([None, None], 0)
    task = TaskAttempt(scope.name, "again", 0, 0, 0)
    writer.commit([TaskCommitMessage(1, task, attempt(b"again", run="again"))], 0)
    assert visible() == [b"again"]


class _Killed(BaseException):
    """The driver died."""


_STEPS = ("take_over", "list_open", "check_open", "record", "finish", "abort_orphans")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", _STEPS)
def test_a_driver_that_dies_between_two_steps(decider, attempt, visible, step, when):
    """The one after it writes the batch again, and decides; whoever decided first is heard."""

    class Dying(Decider):
        """Dies at its last visit of the step: ``finish`` and ``abort_orphans`` are come to twice or late."""

        recorded = False

        def record(self, decision):
            super().record(decision)
            self.recorded = True

    def dies(method):
        def call(self, *args, **kwargs):
            if step == "finish" and not self.recorded:
                return method(self, *args, **kwargs)
            if when == "after":
                method(self, *args, **kwargs)
            raise _Killed

        return call

    setattr(Dying, step, dies(getattr(Dying, step)))
    decider().commit(0, [attempt(b"zero", run="before")])
    first = [attempt(b"1a", 1), attempt(b"1b", 1)]
    orphan = attempt(b"orphan", 1)
    with pytest.raises(_Killed):
        decider(kind=Dying).commit(1, first)
    is_decided = step in ("finish", "abort_orphans") or (step, when) == ("record", "after")
    again = [attempt(b"2a", 1, run="again"), attempt(b"2b", 1, run="again")]
    decided = decider().commit(1, again)
    assert (decided.batch, decided.transactions) == (1, tuple(sorted(first if is_decided else again)))
    assert orphan in decided.aborted
    assert visible() == [b"zero", *([b"1a", b"1b"] if is_decided else [b"2a", b"2b"])]


def test_a_driver_that_dies_in_the_middle_of_finishing(decider, admin, attempt, visible):
    first, second = attempt(b"a"), attempt(b"b")
    one = decider()
    one.take_over()
    one.record(Decision(0, (first, second)))
    assert admin.end_prepared([first], commit=True) == [True]
    decider().commit(1, [attempt(b"c", 1)])
    assert visible() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("steps", range(5))
def test_two_who_decide_at_once(decider, attempt, visible, steps):
    """The first gets some steps far before the second decides the same batch; then the first goes on."""
    mine, theirs = attempt(b"mine"), attempt(b"theirs")
    first, second = decider(), decider()
    taken = [
        first.take_over,
        first.list_open,
        lambda: first.check_open([mine]),
        lambda: first.record(Decision(0, (mine,))),
        lambda: first.finish(Decision(0, (mine,))),
    ]
    for step in taken[:steps]:
        step()
    decided = second.commit(0, [theirs])
    assert decided.transactions == ((mine,) if steps > 3 else (theirs,))
    if 0 < steps <= 3:
        with pytest.raises(ApiError) as caught:
            first.record(Decision(0, (mine,)))
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert first.commit(0, [mine]).transactions == decided.transactions
    assert visible() == [b"mine" if steps > 3 else b"theirs"]


def test_a_fenced_decider_begins_again(decider, attempt, visible):
    class Fenced(Decider):
        rounds = 0

        def check_open(self, transactions):
            super().check_open(transactions)
            self.rounds += 1
            if self.rounds == 1:
                decider().take_over()

    one = decider(kind=Fenced)
    mine = attempt(b"mine")
    assert one.commit(0, [mine]).transactions == (mine,)
    assert one.rounds == 2
    assert visible() == [b"mine"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE])
@pytest.mark.parametrize("is_resumable", [True, False])
def test_a_decider_that_was_too_slow_begins_again(
    metadata, admin, decider, attempt, visible, scope, code, is_resumable
):
    """It stopped for a while amid its own transaction, and the broker has aborted that."""
    of = scope._replace(is_resumable=is_resumable)

    class Slow(Decider):
        rounds = 0

        def record(self, decision):
            self.rounds += 1
            if self.rounds == 1:
                self._recorded = decision
                raise ApiError(code, "the coordinator has ended the transaction")
            super().record(decision)

    one = decider(of, Slow)
    mine = attempt(b"mine")
    assert one.commit(0, [mine]).transactions == (mine,)
    assert one.rounds == 2
    assert DecisionLog(metadata, admin).last(of).transactions == (mine,)
    assert visible() == [b"mine"]


def test_what_ended_before_the_decision_fails_the_batch(decider, admin, attempt, visible):
    kept, ended = attempt(b"kept"), attempt(b"ended")
    admin.end_prepared([ended], commit=False)
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        decider().commit(0, [kept, ended])
    assert decider().take_over().batch == NO_BATCH
    decider().abort(0, [kept], "run")
    assert visible() == []


def test_a_batch_is_decided_though_orphans_cannot_be_listed(decider, attempt, admin, visible):
    class Blind(Decider):
        def list_open(self, run=None):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a broker has just died")

    mine, orphan = attempt(b"mine"), attempt(b"orphan")
    assert decider(kind=Blind).commit(0, [mine]).transactions == (mine,)
    assert list(admin.open_transactions([mine.transactional_id, orphan.transactional_id])) == [orphan.transactional_id]
    decider().commit(1, [])
    assert visible() == [b"mine"]


def test_an_abort_asks_first(decider, attempt, visible):
    named, orphan = attempt(b"named"), attempt(b"orphan")
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    assert decider().abort(0, [named, orphan], "run").transactions == (named,)
    assert visible() == [b"named"]


def test_an_abort_ends_what_the_run_left(decider, admin, attempt, visible):
    mine, left, other = attempt(b"mine"), attempt(b"left"), attempt(b"other", run="another")
    decider().abort(0, [mine], "run")
    assert list(admin.open_transactions([each.transactional_id for each in (mine, left, other)])) == [
        other.transactional_id
    ]
    decider().commit(0, [other])
    assert visible() == [b"other"]


def test_what_a_replay_is_about_to_abort_is_named_by_no_later_batch(decider, attempt, visible):
    class Paused(Decider):
        def abort_orphans(self, orphans):
            pass  # it stops for a while, between recording and aborting

    named, alive = attempt(b"named"), attempt(b"alive", 1)
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    decider(kind=Paused).commit(0, [])
    with pytest.raises(DataSourceError, match=f"SPARKLOG_TRANSACTION_ENDED.*{re.escape(repr(alive.transactional_id))}"):
        decider().commit(1, [alive])
    again = attempt(b"again", 1)
    assert decider().commit(1, [again]).transactions == (again,)
    assert visible() == [b"named", b"again"]


def test_a_query_of_which_nothing_is_known_is_told_of(decider, attempt, visible, caplog):
    """A checkpoint may come from another sink; or coordinators have forgotten in a week what the topic lost."""
    decider().commit(7, [attempt(b"seven", 7)], "run")
    assert len([each for each in caplog.records if "nothing is known of what scope" in each.message]) == 1
    decider().commit(8, [attempt(b"eight", 8)], "run")
    assert len([each for each in caplog.records if "nothing is known of what scope" in each.message]) == 1
    assert visible() == [b"seven", b"eight"]


def test_scopes_do_not_touch_one_another(decider, attempt, visible, scope):
    other = Scope(f"{scope.name}2")
    theirs = attempt(b"theirs", of=other)
    decider().commit(0, [attempt(b"mine")])
    assert decider(other).commit(0, [theirs]).transactions == (theirs,)
    assert visible() == [b"theirs", b"mine"]


def test_a_dead_driver_is_finished_for(decider, attempt, visible):
    named, undecided = attempt(b"named"), attempt(b"undecided", 1)
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    last, aborted = decider().finish_all()
    assert (last.transactions, aborted) == ((named,), {undecided})
    assert visible() == [b"named"]


def test_a_batch_write_finishes_what_dead_ones_have_left(
    metadata, admin, decider, attempt, visible, make_topic, monkeypatch
):
    """One died before it decided, one after; a name that looks like theirs is left alone."""
    runs = [uuid.uuid4().hex[:16] for _ in range(2)]
    scopes = [Scope(unnamed_scope(run), is_resumable=False) for run in runs]
    undecided, decided = (
        attempt(value, of=of, run=run) for value, of, run in zip((b"u", b"d"), scopes, runs, strict=True)
    )
    named = attempt(b"named", of=Scope(unnamed_scope("x")), run="y")
    one = decider(scopes[1])
    one.take_over()
    one.record(Decision(0, (decided,)))
    lost = attempt(b"lost", of=Scope(unnamed_scope("0")), run="0")  # the first of them, and nobody can finish it
    lose = DecisionLog.last
    monkeypatch.setattr(DecisionLog, "last", lambda self, of, **how: _unless_lost(of) or lose(self, of, **how))
    all_ids = {each.transactional_id for each in (undecided, decided, named, lost)}

    def are_old():
        return all_ids <= {each.transactional_id for each in admin.list_transactions(open_longer_ms=1)}

    eventually(are_old, what="all have been open for longer than a millisecond")
    options = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic(suffix="-2")}
    schema = StructType().add("value", "binary")
    SparklogWriter(WriteOptions.for_batch(options), schema, overwrite=False).commit([None])
    assert set(admin.open_transactions(all_ids)) == all_ids
    soon = WriteOptions.for_batch({**options, "abandonedAfter": "1ms"})
    SparklogWriter(soon, schema, overwrite=False).commit([None])
    assert set(admin.open_transactions(all_ids)) == {named.transactional_id, lost.transactional_id}
    monkeypatch.undo()
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        decider(scopes[0]).commit(0, [undecided])  # its driver lives after all
    for name in ("x", "0"):
        decider(Scope(unnamed_scope(name))).finish_all()
    assert visible() == [b"d"]


def _unless_lost(scope):
    if scope.name == unnamed_scope("0"):
        raise DataSourceError("SPARKLOG_DECISION_LOST", "its record is gone")


def test_a_living_write_that_is_taken_for_dead_fails(metadata, make_topic):
    """Its tasks find that it is over and hand no rows over, also that which Spark runs again: that is not "no rows"."""
    run = uuid.uuid4().hex[:16]
    name = unnamed_scope(run)
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic()}
    options, task = WriteOptions.for_batch(given), TaskAttempt(name, run, 0, 0, 0, is_resumable=False)
    rows = pa.record_batch({"value": [b"row"]})

    def is_finished_meanwhile():
        yield rows
        assert finish_scope(metadata.config, name) == (0, 1)

    with pytest.raises(BatchRefused):
        write_prepared(options, task, is_finished_meanwhile())
    assert write_prepared(options, task._replace(attempt=1), iter([rows])) == AttemptResult(1)
    sink, told = Sink(options), [TaskCommitMessage(1, task)]
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        sink.commit(name, 0, told, is_resumable=False)
    sink.abort(name, 0, told, run, is_resumable=False)


def test_an_abort_that_fails_is_logged_and_takes_the_place_of_no_error(monkeypatch, scope, caplog):
    """Spark aborts because of an error, and would show the one of the abort, without a word, in its place."""

    def refuse(*_):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "as if a right were missing")

    monkeypatch.setattr(Decider, "abort", refuse)
    options = WriteOptions.for_batch({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "any"})
    Sink(options).abort(scope.name, 3, [], "run")
    assert f"what batch 3 of '{scope.name}' has open is left to the next run" in caplog.text
    assert "as if a right were missing" in caplog.text


def test_rows_that_tasks_kept_back_are_not_taken_for_none(metadata, make_topic, scope):
    """They found the batch decided; then a person declared an earlier one the last."""
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic()}
    options, task = WriteOptions.for_batch(given), TaskAttempt(scope.name, "run", 3, 0, 0)
    declare_last_batch(metadata.config, scope.name, 3)
    assert write_prepared(options, task, iter([pa.record_batch({"value": [b"row"]})])) == AttemptResult(1)
    Sink(options).commit(scope.name, 3, [TaskCommitMessage(1, task)], run="run")
    declare_last_batch(metadata.config, scope.name, 2)
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        Sink(options).commit(scope.name, 3, [TaskCommitMessage(1, task)], run="run")


@pytest.fixture
def make_again(make_topic):
    """Creates a topic under the name of one whose deletion has begun: brokers refuse that until it has ended."""

    def make(suffix=""):
        def made():
            try:
                return make_topic(suffix=suffix)
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                return None

        return eventually(made, what="the topic is deleted, and made again")

    return make


@pytest.mark.parametrize("again", [True, False], ids=["made again", "gone"])
def test_a_topic_that_is_deleted_while_it_is_written_to_takes_the_batch_along(
    metadata, admin, make_topic, make_again, scope, again
):
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic()}
    options, topic = WriteOptions.for_batch(given), given["topic"]
    sink, rows = Sink(options), pa.record_batch({"value": [b"row"]})
    written = sink.write(TaskAttempt(scope.name, "run", 0, 0, 0), iter([rows]))
    admin.delete_topics([topic])
    if again:
        make_again()
    with pytest.raises(DataSourceError, match=rf"TOPIC.*{topic}.*deleted.*nothing of the batch is visible"):
        sink.commit(scope.name, 0, [written], run="run")
    sink.abort(scope.name, 0, [written], "run")
    if not again:
        make_again()
    written = sink.write(TaskAttempt(scope.name, "run", 0, 0, 1), iter([rows]))
    sink.commit(scope.name, 0, [written], run="run")
    metadata.invalidate(topic)
    assert values_in(metadata, TopicPartition(topic, 0)) == [b"row"]


def test_a_write_that_begins_tasks_is_alive():
    class Listing:
        def list_transactions(self, *, states, open_longer_ms=0):
            assert states == ["Ongoing"]
            old = ["dead/dead/0-0-0-0", "alive/alive/0-0-0-0"]
            young = ["alive/alive/1-0-0-0", "new/new/0-0-0-0"]
            names = [f"sparklog-spark/write-{each}" for each in [*old, *([] if open_longer_ms else young)]]
            return [TransactionListing(each, 0, 1, "Ongoing") for each in names]

    assert abandoned(Listing(), 5000) == ["write-dead"]


@pytest.mark.parametrize(
    ("code", "is_told"), [(ErrorCode.UNSUPPORTED_VERSION, False), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True)]
)
def test_a_write_does_not_fail_for_what_others_have_left(metadata, caplog, monkeypatch, code, is_told):
    def refused(*_, **__):
        raise ApiError(code, "it cannot be listed")

    monkeypatch.setattr(Admin, "list_transactions", refused)
    assert finish_abandoned(metadata.config, 1) == []
    assert ("it cannot be listed" in caplog.text) is is_told


def test_nothing_decided_can_be_finished_too(decider, attempt, visible):
    undecided = attempt(b"undecided")
    assert decider().finish_all() == (Decision(), {undecided})
    assert decider().commit(0, [attempt(b"zero")]).batch == 0
    assert visible() == [b"zero"]


def test_a_decision_is_found_when_the_group_has_forgotten(metadata, decider, admin, attempt, scope):
    named = attempt(b"named")
    decider().commit(7, [named])
    log = DecisionLog(metadata, admin)
    assert log.last_batch(scope) == 7
    admin.delete_groups([scope.decider_id])
    assert log.last_batch(scope) == NO_BATCH
    assert log.last(scope) == Decision(7, (named,))
    assert log.last(scope, is_own=True) == Decision()


@pytest.fixture
def neighbour(decider, metadata, admin, scope):
    """Another scope in the same partition of the decisions."""
    log = DecisionLog(metadata, admin)
    return next(
        other
        for number in itertools.count()
        if log.partition_of(other := Scope(f"{scope.name}-neighbour-{number}")) == log.partition_of(scope)
    )


@pytest.fixture
def undecided_before(decider, metadata, admin, neighbour):
    """``with undecided_before():`` a neighbour's decision is written and not yet committed; nothing after it is stable.

    A scope's first decider waits for such a one, and the broker aborts it meanwhile: take over before.
    """
    one = decider(neighbour)
    one.take_over()
    producer, place = one._producer, DecisionLog(metadata, admin).partition_of(neighbour)

    @contextmanager
    def undecided():
        producer.begin_transaction()
        producer.send(place.topic, b"{}", key=neighbour.key, partition=place.partition)
        producer.flush()
        yield
        with suppress(ApiError):  # the broker may have done so
            producer.abort_transaction()

    return undecided


_ODD_SETTINGS = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.partition.fetch.bytes": "1",
    "kafka.fetch.max.bytes": "1",
    "kafka.fetch.max.wait.ms": "0",
    "kafka.check.crcs": "false",
    "kafka.max.request.size": "100",
    "kafka.batch.size": "1",
    "kafka.compression.type": "zstd",
    "kafka.max.in.flight.requests.per.connection": "1",
    "kafka.client.id": "odd",
}


def test_no_setting_of_the_write_hides_a_decision(metadata, scope, attempt, undecided_before, visible):
    """A neighbour's open decision stands before ours, and who replays reads committed records alone."""
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, **_ODD_SETTINGS}
    config = WriteOptions.for_batch(given).client
    named = attempt(b"decided")
    with Decider(config, scope) as one:
        one.take_over()
        with undecided_before():
            one.record(Decision(0, (named,)))
            with Decider(config, scope) as again:
                assert again.commit(0, [attempt(b"again", run="again")]).transactions == (named,)
    assert visible() == [b"decided"]


def test_old_decisions_are_not_read_to_find_the_last_of_a_scope(metadata, decider, admin, attempt, scope, monkeypatch):
    """An index stands for them, and whoever reads much writes the next one; with none of it all is read."""
    read, plain = [], decision_index.checked_records

    def counted(batches):
        for record in plain(batches):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(decision_index, "checked_records", counted)
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)
    named = attempt(b"0")
    one = decider()
    one.commit(0, [named], "run")
    log, place = DecisionLog(metadata, admin), DecisionLog(metadata, admin).partition_of(scope)
    scopes = (Scope(f"{scope.name}-{n}") for n in itertools.count())
    others = list(itertools.islice((each for each in scopes if log.partition_of(each) == place), 24))
    most = 3 * 2 * 16
    for other in others:
        with Decider(metadata.config, other) as busy:
            busy.take_over()
            for batch in range(4):
                busy.record(Decision(batch))
        admin.delete_groups([other.decider_id])
    admin.delete_groups([scope.decider_id])
    for has_index in (True, False):
        read.clear()
        assert log.last(scope) == Decision(0, (named,))
        assert log.last(others[0]) == Decision(3)
        assert log.last(Scope(f"{scope.name}-new")) == Decision()
        assert (len(read) < most) == has_index
        if has_index:
            admin.delete_groups([decision_index.GROUP])


def _unreadable(monkeypatch, change):
    """Records of decisions come as ``change`` makes them."""
    plain = decision_index.checked_records
    monkeypatch.setattr(decision_index, "checked_records", lambda batches: change(plain(batches)))


def _gone(records):
    return iter(list(records)[:0])


def _of_a_later_version(records):
    return (each._replace(value=b'{"version":3,"batch":7}') for each in records)


def _of_another_batch(records):
    return (each._replace(value=Decision(3).encode()) for each in records)


def _deleted(records):
    return (each._replace(value=None) for each in records)


def _damaged(records):
    raise CorruptRecord("a batch has another CRC than it says")


def _out_of_range(records):
    raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "the partition holds 9 to 12")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_gone, "LOST"),
        (_of_a_later_version, "UNKNOWN_DECISION"),
        (_of_another_batch, "LOST"),
        (_deleted, "LOST"),
        (_damaged, "LOST"),
        (_out_of_range, "LOST"),
    ],
)
def test_nothing_ends_where_a_decision_cannot_be_read(decider, attempt, admin, visible, monkeypatch, change, code):
    """Neither by a replay, nor by the next batch, an abort, or in place of a dead driver."""
    named, orphan = attempt(b"named", 7), attempt(b"orphan", 7)
    one = decider()
    one.take_over()
    one.record(Decision(7, (named,)))
    later = attempt(b"later", 8, run="later")
    with monkeypatch.context() as patch:
        _unreadable(patch, change)
        for ends in (
            lambda: decider().commit(7, [later]),
            lambda: decider().commit(8, [later]),
            lambda: decider().abort(8, [later], "later"),
            lambda: decider().finish_all(),
        ):
            with pytest.raises(DataSourceError, match=code):
                ends()
    assert len(admin.open_transactions([each.transactional_id for each in (named, orphan, later)])) == 3
    assert decider().commit(8, [later]).transactions == (later,)
    assert visible() == [b"named", b"later"]


def test_a_person_declares_what_nobody_can_tell(metadata, decider, attempt, admin, visible, scope, monkeypatch):
    named = attempt(b"named", 7)
    one = decider()
    one.take_over()
    one.record(Decision(7, (named,)))
    with monkeypatch.context() as patch:
        _unreadable(patch, _gone)
        with pytest.raises(DataSourceError, match="--last-batch 7") as caught:
            decider().take_over()
        assert shlex.quote(scope.name) in str(caught.value)
        assert [each.is_decided for each in open_writes(metadata, admin, [scope.name])] == [None]
        admin.end_prepared([named], commit=True)
        declare_last_batch(metadata.config, scope.name, 7)
    assert decider().commit(7, [attempt(b"again", 7)]) == Decision(7)
    decider().commit(8, [attempt(b"eight", 8)])
    assert visible() == [b"named", b"eight"]


def test_nothing_is_aborted_where_the_decisions_have_lost_records(
    metadata, decider, attempt, admin, visible, scope, monkeypatch
):
    """The group has forgotten, and the record may be among those that a retention has removed."""
    old, mine = attempt(b"old", run="old"), attempt(b"mine", run="mine")
    monkeypatch.setattr(DecisionLog, "has_lost_records", lambda *_: True)
    for ends in (lambda: decider().commit(0, [mine], "mine"), lambda: decider().finish_all()):
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DECISION_LOST.*-1 where no batch was written"):
            ends()
    admin.end_prepared([old], commit=True)
    with pytest.raises(DataSourceError, match="SPARKLOG_DECISION_LOST"):  # of which batch was it?
        decider().commit(1, [mine], "mine")
    declare_last_batch(metadata.config, scope.name, 0)
    assert decider().commit(1, [mine], "mine").transactions == (mine,)
    assert visible() == [b"old", b"mine"]


def test_a_person_declares_that_no_batch_was_written(metadata, decider, attempt, admin, visible, scope, monkeypatch):
    """What an earlier run left is aborted then, also when the group has forgotten that in turn."""
    monkeypatch.setattr(DecisionLog, "has_lost_records", lambda *_: True)
    attempt(b"old", run="old")
    mine = attempt(b"mine", run="mine")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DECISION_LOST.*-1 where no batch was written"):
        decider().commit(0, [mine], "mine")
    declare_last_batch(metadata.config, scope.name, NO_BATCH)
    admin.delete_groups([scope.decider_id])
    assert decider().commit(0, [mine], "mine").transactions == (mine,)
    assert visible() == [b"mine"]


def test_a_decision_at_the_end_of_a_log_that_was_cut_off_is_lost(metadata, admin, decider, attempt, scope):
    """A fetch from there is not refused: brokers take it for one that waits for more."""
    place = DecisionLog(metadata, admin).partition_of(scope)

    class Cut(Decider):
        def record(self, decision):
            end = latest_offsets(metadata, [place], IsolationLevel.READ_UNCOMMITTED)[place]
            self._producer.begin_transaction()
            self._producer.send_offsets_to_transaction({place: (end, -1, str(decision.batch))}, scope.decider_id)
            self._producer.commit_transaction()

    decider(kind=Cut).commit(0, [])
    hasty = dataclasses.replace(metadata.config, api_timeout_ms=5000)
    with (
        Decider(hasty, scope) as one,
        pytest.raises(DataSourceError, match=r"SPARKLOG_DECISION_LOST.*ends at.*--last-batch 0"),
    ):
        one.commit(1, [attempt(b"one", 1)])


@pytest.fixture
def forgotten(monkeypatch):
    """``forgotten(transactions)``: brokers know these ids no more, as after a week."""

    def forget(transactions):
        ids, found, by_pair = {each.transactional_id for each in transactions}, Admin.end_prepared, []

        def end(self, those, *, commit):
            those = list(those)
            known = [each for each in those if each.transactional_id not in ids]
            ended = dict(zip(known, found(self, known, commit=commit), strict=True))
            return [ended.get(each) for each in those]

        monkeypatch.setattr(Admin, "end_prepared", end)
        return by_pair

    return forget


def test_what_brokers_have_forgotten_is_finished_if_that_was_noted(decider, attempt, admin, visible, scope, forgotten):
    named = attempt(b"named")
    decider().commit(0, [named])
    forgotten([named])
    assert decider().commit(0, []).transactions == (named,)
    admin.delete_groups([scope.decider_id])  # it expires as well
    decider().commit(1, [attempt(b"one", 1)])
    assert visible() == [b"named", b"one"]


def test_what_brokers_have_forgotten_is_not_taken_for_committed(decider, attempt, visible, forgotten, metadata, scope):
    """The driver died between its decision and the end, and the broker aborted all after its timeout."""
    named, other = attempt(b"named"), attempt(b"other")
    one = decider()
    one.take_over()
    one.record(Decision(0, (named, other)))
    one.end([named, other], commit=False)
    forgotten([named])
    later = attempt(b"one", 1)
    for ends in (lambda: decider().commit(0, []), lambda: decider().commit(1, [later])):
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DECISION_UNPROVEN.*1 of its 2.*--last-batch 0"):
            ends()
    declare_last_batch(metadata.config, scope.name, 0)
    decider().commit(1, [later])
    assert visible() == [b"one"]


@pytest.fixture
def decisions_topic(admin, topic, monkeypatch):
    """``decisions_topic(partitions)``: the decisions of this test stand in a topic that a person has made."""
    name = f"{topic}-decisions"
    for module in (decisions, decider_module):
        monkeypatch.setattr(module, "DECISIONS_TOPIC", name)

    def make(partitions):
        admin.create_topics([NewTopic(name, partitions, 1, {"cleanup.policy": "compact"})])
        return name

    return make


def _moving(scope, before, after):
    """A scope that a topic of so many partitions would have elsewhere when it has grown."""
    named = (Scope(f"{scope.name}-{number}") for number in itertools.count())
    return next(each for each in named if partition_for(each.key, before) != partition_for(each.key, after))


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_decisions_topic_that_grows_moves_no_scope(
    metadata, decider, admin, attempt, scope, visible, decisions_topic, is_forgotten
):
    name = decisions_topic(3)
    moving = _moving(scope, 3, 8)
    named = attempt(b"zero", of=moving)
    decider(moving).commit(0, [named])
    place = DecisionLog(metadata, admin).partition_of(moving)
    for partitions in (5, 8, 12):
        admin.create_partitions({name: partitions})
        if is_forgotten:
            admin.delete_groups([moving.decider_id])
        assert DecisionLog(metadata, admin).last_batch(moving) == (NO_BATCH if is_forgotten else 0)
        replayed = decider(moving).commit(0, [attempt(b"again", of=moving, run=f"again-{partitions}")])
        assert replayed.transactions == (named,)
        assert DecisionLog(metadata, admin).partition_of(moving) == place
    decider(moving).commit(1, [attempt(b"one", 1, of=moving)])
    assert DecisionLog(metadata, admin).last(moving).batch == 1
    assert visible() == [b"zero", b"one"]


@pytest.fixture
def clean(metadata, admin, scope, decisions_topic):
    """Has the broker compact the decisions, all that are there, and says how many records went."""
    decisions_topic(1)

    def compact():
        ((_, outcome),) = admin.compact([DecisionLog(metadata, admin).partition_of(scope)]).items()
        assert outcome.error is None
        return 0 if outcome.run is None else outcome.run.messages_before - outcome.run.messages_after

    return compact


@pytest.mark.parametrize("servers", ["sparklog"], indirect=True)
@pytest.mark.parametrize("is_forgotten", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_query_goes_on_while_its_decisions_are_cleaned(
    decider, admin, attempt, scope, visible, clean, monkeypatch, is_forgotten
):
    """After each step: a decision that is recorded and not carried out, a commit, a replay, an abort."""
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 8)
    gone = 0
    for batch in range(2):
        named = attempt(b"%d" % batch, batch)
        if batch % 2:
            dead = decider()
            dead.take_over()
            dead.record(Decision(batch, (named,)))
        else:
            decider().commit(batch, [named])
        gone += clean()
        if is_forgotten:
            admin.delete_groups([scope.decider_id])
        assert decider().commit(batch, [attempt(b"again", batch, run="again")]).transactions == (named,)
        gone += clean()
        assert decider().abort(batch + 1, [attempt(b"undone", batch + 1)], "run").batch == batch
        gone += clean()
    assert decider().commit(0, [attempt(b"late", 0)]).batch == 1
    assert gone > 2
    assert visible() == [b"0", b"1"]


@pytest.mark.parametrize("servers", ["sparklog"], indirect=True)
def test_a_write_that_is_over_is_so_when_its_decision_is_cleaned(metadata, decider, admin, attempt, clean, visible):
    once, other = Scope(f"once-{uuid.uuid4().hex}", is_resumable=False), Scope(f"other-{uuid.uuid4().hex}")
    log = DecisionLog(metadata, admin)
    admin.alter_topic_configs(log.partition_of(once).topic, {"delete.retention.ms": "0"})
    named = attempt(b"a", of=once)
    one = decider(once)
    one.commit(0, [named])
    straggler = attempt(b"late", of=once)
    one.forget()
    for batch in range(3):  # the decision goes, and then its deletion
        clean()
        decider(other).commit(batch, [attempt(b"%d" % batch, batch, of=other)])
    assert not log.knows(once)
    assert log.is_over(once)
    assert decider(once, for_dead_driver=True).finish_all() == (Decision(), {straggler})
    assert visible() == [b"a", b"0", b"1", b"2"]


def test_a_scope_that_began_in_a_grown_topic_is_found_by_who_does_not_know_of_it(
    metadata, decider, admin, attempt, scope, visible, decisions_topic, monkeypatch
):
    name = decisions_topic(3)
    moving = _moving(scope, 3, 8)
    late = DecisionLog(metadata, admin)
    late.partition_of(scope)
    admin.create_partitions({name: 8})
    named = attempt(b"zero", of=moving)
    decider(moving).commit(0, [named])
    assert late.last_batch(moving) == 0
    assert late.last(moving).transactions == (named,)


def test_the_later_of_two_places_counts(metadata, decider, admin, attempt, scope, decisions_topic, monkeypatch):
    """A version that took the present count for the place has left decisions in both."""
    name = decisions_topic(3)
    moving = _moving(scope, 3, 8)
    decider(moving).commit(0, [attempt(b"zero", of=moving)])
    admin.create_partitions({name: 8})
    with monkeypatch.context() as patch:
        patch.setattr(DecisionLog, "_search", DecisionLog.settle_partition)
        patch.setattr(DecisionLog, "_committed_by_group", lambda *_: (-1, NO_BATCH))
        decider(moving).declare(4)
    assert DecisionLog(metadata, admin).last(moving) == Decision(4)
    admin.delete_groups([moving.decider_id])
    assert DecisionLog(metadata, admin).last(moving) == Decision(4)


def test_a_person_declares_in_a_topic_that_has_grown(
    metadata, decider, admin, attempt, scope, decisions_topic, monkeypatch
):
    """What the places before hold cannot be read; what is declared is the last decision all the same."""
    name = decisions_topic(3)
    moving = _moving(scope, 3, 8)
    decider(moving).commit(0, [attempt(b"zero", of=moving)])
    admin.create_partitions({name: 8})
    admin.delete_groups([moving.decider_id])
    with monkeypatch.context() as patch:
        _unreadable(patch, _damaged)
        with pytest.raises(DataSourceError, match="SPARKLOG_DECISION_LOST"):
            decider(moving).commit(1, [])
        declare_last_batch(metadata.config, moving.name, 4)
    assert DecisionLog(metadata, admin).last(moving) == Decision(4)
    admin.delete_groups([moving.decider_id])
    assert DecisionLog(metadata, admin).last(moving) == Decision(4)


def test_a_decisions_topic_that_was_made_again_is_no_empty_one(
    metadata, decider, admin, attempt, scope, visible, decisions_topic
):
    """A replay would write twice: nothing is decided, ended or aborted until a person has said what was written."""
    name = decisions_topic(8)
    decider().commit(6, [attempt(b"six", 6)])
    decider().commit(7, [attempt(b"seven", 7)])
    admin.delete_topics([name])

    def is_made_again():
        with suppress(ApiError):  # while Kafka is deleting it
            decisions_topic(8)
            return True

    eventually(is_made_again, what="the topic is there again")
    again, orphan = attempt(b"again", 7, run="again"), attempt(b"orphan", 7, run="dead")
    for ends in (
        lambda: decider().commit(7, [again]),
        lambda: decider().commit(8, [again]),
        lambda: decider().abort(7, [again], "again"),
        lambda: decider().finish_all(),
    ):
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DECISION_LOST.*made again.*sparklog writes declare"):
            ends()
    assert len(admin.open_transactions([again.transactional_id, orphan.transactional_id])) == 2
    assert {each.is_decided for each in open_writes(metadata, admin, [scope.name])} == {None}
    declare_last_batch(metadata.config, scope.name, 7)
    assert decider().commit(7, [again]) == Decision(7)
    decider().commit(8, [attempt(b"eight", 8)])
    assert visible() == [b"six", b"seven", b"eight"]


def test_decisions_have_a_replica_on_each_of_two_brokers(tmp_path, scope):
    with ClusterHarness(tmp_path, brokers=2) as harness:
        config = ClientConfig(bootstrap_servers=harness.bootstrap_servers)
        with Decider(config, scope) as decider:
            assert decider.commit(0, []) == Decision(0)
        with ClusterMetadata(config) as cluster:
            kept = cluster.topic(DECISIONS_TOPIC).partitions
    assert [len(each.replicas) for each in kept] == [2] * PARTITIONS


def test_a_write_that_nobody_comes_back_to_leaves_no_trace(metadata, decider, admin, attempt, visible, scope):
    """Its stragglers find out all the same that it is over."""
    once, aborted = (Scope(f"{scope.name}/{name}", is_resumable=False) for name in ("once", "aborted"))
    log = DecisionLog(metadata, admin)
    assert not log.is_over(once)
    one = decider(once)
    one.commit(0, [attempt(b"once", of=once)])
    assert log.last_batch(once) == 0
    one.forget()
    decider(aborted).abort(0, [attempt(b"aborted", of=aborted)], "run")
    groups = {each.group_id for each in admin.list_groups()}
    for each in (once, aborted):
        assert each.decider_id not in groups
        assert log.last(each) == Decision()
        assert log.is_over(each)
    assert visible() == [b"once"]


def test_a_straggler_of_a_write_that_is_over_aborts_itself(metadata, decider, attempt, make_topic, scope, admin):
    once = Scope(f"{scope.name}/once", is_resumable=False)
    rows = pa.record_batch({"value": [b"late"]})

    def is_decided_meanwhile():
        yield rows
        one = decider(once, Blind)
        one.commit(0, [])
        one.forget()

    class Blind(Decider):
        def list_open(self, run=None):
            return set()

    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic(suffix="-late")}
    task = TaskAttempt(once.name, "run", 0, 0, 0, is_resumable=False)
    assert write_prepared(WriteOptions.for_batch(given), task, is_decided_meanwhile()) == AttemptResult(1)
    assert write_prepared(WriteOptions.for_batch(given), task, iter([rows])) == AttemptResult(1)
    assert not admin.open_under(ids_prefix(once.name))


def test_a_decision_that_another_has_finished_and_forgotten_counts(decider, attempt, visible, scope, metadata):
    """The driver does not hear that its decision is recorded; it is taken for dead just then, and finished."""
    once = Scope(f"{scope.name}/once", is_resumable=False)

    class Deaf(Decider):
        def record(self, decision):
            super().record(decision)
            other = decider(once, for_dead_driver=True)
            other.finish_all()
            raise ApiError(ErrorCode.PRODUCER_FENCED, "another has taken over")

    named = attempt(b"once", of=once)
    assert decider(once, Deaf).commit(0, [named]).transactions == (named,)
    assert visible() == [b"once"]


def test_a_decision_that_another_has_finished_counts_though_a_later_one_follows(decider, attempt, visible):
    """The driver does not hear that its decision is recorded; another finishes it, and decides the next batch."""

    class Deaf(Decider):
        def record(self, decision):
            super().record(decision)
            decider().commit(2, [attempt(b"two", 2)])
            raise ApiError(ErrorCode.PRODUCER_FENCED, "another has taken over")

    attempt(b"of a task that failed", 1, partition=7)
    named = attempt(b"one", 1)
    assert decider(kind=Deaf).commit(1, [named]).transactions == (named,)
    assert sorted(visible()) == [b"one", b"two"]


def test_a_task_whose_rows_were_aborted_writes_no_more(decider, admin, attempt, make_topic, visible):
    """It would open a transaction under the same pair, which its driver would take for all that the task wrote."""
    slow = attempt(b"half of three", 3)
    decider().commit(1, [attempt(b"one", 1)])
    decider().commit(2, [attempt(b"two", 2)])
    with pytest.raises(ApiError) as refused:
        admin.add_to_prepared(slow, [TopicPartition(make_topic(suffix="-other"), 0)])
    assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        decider().commit(3, [slow])
    assert sorted(visible()) == [b"one", b"two"]


def test_who_comes_too_late_is_told_so(metadata, decider, attempt, visible, scope):
    """With rows or without, as when the tasks have seen themselves that a later batch is decided."""
    late, task = attempt(b"late", 1), TaskAttempt(scope.name, "run", 1, 0, 0)
    decider().commit(2, [attempt(b"two", 2)])
    options = WriteOptions.for_batch({"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": "unused"})
    rows, transaction, _ = write_prepared(options, task, iter([pa.record_batch({"value": [b"late"]})]))
    assert (rows, transaction) == (1, None)
    writer = SparklogStreamWriter(options, StructType().add("value", "binary"))
    for messages in (
        [TaskCommitMessage(rows, task)],
        [TaskCommitMessage(0, task), None],
        [TaskCommitMessage(1, task, late)],
    ):
        with pytest.raises(DataSourceError, match=r"SPARKLOG_BATCH_OVERTAKEN.*new checkpoint.*txnVersion"):
            writer.commit(messages, 1)
    assert visible() == [b"two"]


def test_a_smaller_version_of_a_named_write_is_refused(metadata, attempt, visible, tp):
    given = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": tp.topic, "txnAppId": tp.topic}

    def write(version):
        options = WriteOptions.for_batch({**given, "txnVersion": str(version)})
        writer = SparklogWriter(options, StructType().add("value", "binary"), overwrite=False)
        writer.commit([writer.write(iter([pa.record_batch({"value": [b"%d" % version]})]))])

    write(5)
    write(5)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_BATCH_OVERTAKEN.*txnVersion' above 5"):
        write(3)
    write(6)
    assert visible() == [b"5", b"6"]


@pytest.fixture
def wrote(metadata, scope):
    """``wrote(batch, rows, transaction=None, topic=None)``: the driver has heard that of its only task."""

    def commit(batch, rows, transaction=None, topic=None, topics=frozenset(), run="run"):
        task = TaskAttempt(scope.name, run, batch, 0, 0)
        sink = Sink(WriteOptions(metadata.config, topic))
        sink.commit(scope.name, batch, [TaskCommitMessage(rows, task, transaction, topics)], run=run)

    return commit


def declared(metadata, error):
    """Runs the last command in the error, as a person would."""
    command = re.search(r".*(sparklog writes declare .+? --last-batch -?\d+)", str(error.value))[1]
    *_, scope, _option, batch = shlex.split(command)
    declare_last_batch(metadata.config, scope, int(batch))


def test_a_replay_with_more_or_fewer_rows_is_refused(metadata, attempt, visible, wrote, caplog):
    """The repeated rows stand, whatever they are now; other rows must not vanish."""
    wrote(0, 1, attempt(b"one"))
    wrote(0, 1)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    for rows in (0, 2):
        with pytest.raises(DataSourceError, match=rf"SPARKLOG_REPLAY_DIFFERS.*with {rows} rows.*with 1 rows") as no:
            wrote(0, rows)
    declared(metadata, no)
    wrote(0, 2)
    wrote(1, 1, attempt(b"two", 1))
    assert visible() == [b"one", b"two"]


def test_a_replay_with_rows_of_a_batch_that_had_none_is_refused(attempt, visible, wrote):
    wrote(0, 0)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_REPLAY_DIFFERS.*with 3 rows.*with 0 rows"):
        wrote(0, 3)
    assert visible() == []


def test_a_replay_that_is_refused_names_the_causes_and_first_the_way_on_that_repeats_no_rows(scope, wrote):
    wrote(0, 0)
    with pytest.raises(DataSourceError, match="SPARKLOG_REPLAY_DIFFERS") as refused:
        wrote(0, 3)
    told = str(refused.value)
    steps = [
        "with 3 rows",
        "with 0 rows",
        "a table that has changed",
        "failOnDataLoss=false",
        "random functions",
        "checkpoint was set back",
        decisions.declaration(scope, 0),
        "neither lost nor written twice",
        "do not run it",
        "new checkpoint",
        "'startingOffsets'",
        "'txnVersion' above 0",
    ]
    places = [told.find(each) for each in steps]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(("before", "now"), [("a", "b"), ("a", None), (None, "b")])
def test_a_copied_checkpoint_writes_to_no_other_topic(metadata, attempt, visible, wrote, before, now):
    """Neither the batch that is decided, nor the next; and the query itself goes on."""
    wrote(0, 1, attempt(b"zero"), before)
    for batch, transaction in ((0, None), (1, attempt(b"of the copy", 1, run="copy"))):
        with pytest.raises(DataSourceError, match=rf"SPARKLOG_OTHER_TOPIC.*batch {batch} .*new checkpoint") as no:
            wrote(batch, 1, transaction, now, run="copy")
    wrote(1, 1, attempt(b"one", 1), before)
    with pytest.raises(DataSourceError, match="SPARKLOG_OTHER_TOPIC") as no:
        wrote(2, 1, None, now)
    declared(metadata, no)
    wrote(2, 1, attempt(b"two", 2), now)
    assert visible() == [b"zero", b"one", b"two"]


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_replay_whose_topic_is_gone_says_that_its_rows_are_gone(
    metadata, admin, attempt, visible, wrote, make_topic, make_again, is_made_again
):
    other = make_topic(suffix="-other")
    topics = frozenset([(other, metadata.topic(other).topic_id)])
    wrote(0, 1, attempt(b"zero"), other, topics)
    wrote(0, 1, None, other)
    admin.delete_topics([other])
    if is_made_again:
        make_again("-other")
    code = "TOPIC_RECREATED" if is_made_again else "UNKNOWN_TOPIC"
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_{code}.*--last-batch -1; to go on") as no:
        wrote(0, 1, None, other)
    declared(metadata, no)
    wrote(0, 1, None, other)
    wrote(1, 1, attempt(b"one", 1), other)
    assert visible() == [b"zero", b"one"]


def test_a_batch_that_nobody_knows_cannot_be_written_once():
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNKNOWN_BATCH.*at-least-once"):
        stream_attempt("checkpoint")


def test_names_of_attempts():
    name = AttemptName("a/b c.d", "run-1", 3, 2, 1, 4)
    assert name.transactional_id == "sparklog-spark/a%2Fb%20c.d/run-1/3-2-1-4"
    assert AttemptName.parse(name.transactional_id) == name
    for other in ("payments", "sparklog-spark/x", "sparklog-spark/a/b/c", "sparklog-spark/a/b/1-2-3-x"):
        assert AttemptName.parse(other) is None


def test_a_decision_reads_back():
    named = tuple(
        sorted(
            PreparedTransaction(AttemptName("s/1", "run", n, 0, 1).transactional_id, 7 * n, n % 3) for n in range(30)
        )
    )
    odd = tuple(PreparedTransaction(name, 1, 2) for name in ("a", "sparklog-spark/a/b/01-2-3-4", "ü"))
    of_a_topic = Decision(5, named, odd, 17, "t", uuid.UUID(int=7))
    for decision in (
        of_a_topic,
        Decision(5, named, odd, 17, BY_COLUMN),
        Decision(5, tuple(sorted((*named, *odd)))),
        Decision(0),
        Decision(),
    ):
        assert Decision.decode(decision.encode()) == decision
    first = b'{"version":1,"batch":5,"transactions":[["a",1,2]],"aborted":[["b",3,4]]}'
    assert Decision.decode(first) == Decision(5, (PreparedTransaction("a", 1, 2),), (PreparedTransaction("b", 3, 4),))
    for other in (b"{}", b"nonsense", b"7", b'{"version":3,"batch":1,"transactions":[]}', b'{"version":2}', b"\xff"):
        with pytest.raises(DataSourceError, match="SPARKLOG_UNKNOWN_DECISION"):
            Decision.decode(other)


def _of_many_tasks(scope, count):
    """Producer ids are given out in blocks, to tasks in no order."""
    chance = random.Random(1)
    names = (AttemptName(scope, "6a1c8a4e-9c67-4d3c-a1d5-0f7a7d1c5c11", n, int(n % 97 == 0), 1) for n in range(count))
    ids = (each.transactional_id for each in names)
    written = (PreparedTransaction(each, n + chance.randrange(10**6), 0) for n, each in enumerate(ids))
    return Decision(1, tuple(sorted(written)))


def test_a_decision_of_very_many_tasks_is_small():
    """Of 200 000 it is below what a topic takes, 1 MiB; here a tenth of them, and a tenth of that."""
    decision = _of_many_tasks("6a1c8a4e-9c67-4d3c-a1d5-0f7a7d1c5c11", 20_000)
    value = decision.encode()
    assert len(gzip.compress(value)) < 90_000
    assert len(value) < (8 << 20) / 10
    assert Decision.decode(value) == decision


def test_a_decision_of_very_many_tasks_is_recorded(metadata, admin, decider, scope):
    decision = _of_many_tasks(scope.name, 80_000)
    assert len(decision.encode()) > 1 << 20, "it is larger than a topic takes, unless it is compressed"
    one = decider()
    one.take_over()
    one.record(decision)
    assert DecisionLog(metadata, admin).last(scope) == decision
