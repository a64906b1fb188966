"""Decisions against real brokers: each step of a decider, cut short, raced and taken again. No Spark."""

import itertools
import logging
import re
import uuid
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from sparklog.client.admin import Admin
from sparklog.client.fetcher import fetch_range
from sparklog.client.offsets import latest_offsets
from sparklog.client.prepared_admin import PreparedTransaction
from sparklog.client.transaction_admin import TransactionListing
from sparklog.client.transactional_batches import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.spark.attempt import write_prepared
from sparklog.spark.attempt_names import AttemptName, unnamed_scope
from sparklog.spark.decider import Decider
from sparklog.spark.decisions import NO_BATCH, Decision, DecisionLog, Scope
from sparklog.spark.leftovers import abandoned, finish_abandoned
from sparklog.spark.place import Place, stream_place
from sparklog.spark.write_options import WriteOptions
from sparklog.spark.writer import Sink, SparklogStreamWriter, SparklogWriter, Written
from sparklog.structs import IsolationLevel, TopicPartition
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

    def make(of=scope, kind=Decider):
        made.append(kind(metadata.config, of))
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

    def read():
        def is_settled():
            return latest_offsets(metadata, [tp], IsolationLevel.READ_COMMITTED) == latest_offsets(metadata, [tp])

        eventually(is_settled, what="nothing is open")
        end = latest_offsets(metadata, [tp])[tp]
        batches = fetch_range(metadata, tp, 0, end, isolation=IsolationLevel.READ_COMMITTED)
        return [bytes(record.value) for batch in batches for record in iter_records(batch)]

    return read


def test_what_is_decided_is_committed_and_the_rest_aborted(decider, attempt, visible):
    first, second, orphan = attempt(b"a"), attempt(b"b"), attempt(b"orphan")
    decided = decider().commit(0, [second, first])
    assert decided == Decision(0, tuple(sorted([first, second])))
    assert orphan not in decided.transactions
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
    written, transaction = write_prepared(
        WriteOptions.from_spark(given), Place(scope.name, "run", 0, 0, 0), [rows, rows]
    )
    assert written == 60
    assert Counter(api for api, _ in asked)[ApiKey.ADD_PARTITIONS_TO_TXN] == 1
    assert decider().commit(0, [transaction]).transactions == (transaction,)


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
        place = Place(scope.name, "run", batch, 0, 0)
        writer.commit([Written(1, place, attempt(value, batch, partition=0)), None], batch)
        writer.commit([], batch + 1)
    assert visible() == [b"zero", b"two", b"four"]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_decision_is_finished_though_its_replay_has_no_tasks(metadata, decider, attempt, visible, scope):
    named = attempt(b"named")
    one = decider()
    one.take_over()
    one.record(Decision(0, (named,)))
    writer = SparklogStreamWriter(WriteOptions(metadata.config, "unused"), StructType().add("value", "binary"))
    writer.commit([], 0)
    place = Place(scope.name, "again", 1, 0, 0)
    writer.commit([Written(1, place, attempt(b"one", 1, run="again"))], 1)
    assert visible() == [b"named", b"one"]


def test_what_an_abort_without_messages_leaves_is_aborted_by_the_next_run(metadata, attempt, visible, scope):
    """No task has come to its end, so the sink is not told whose batch it is."""
    attempt(b"left")
    writer = SparklogStreamWriter(WriteOptions(metadata.config, "unused"), StructType().add("value", "binary"))
    writer.abort([None, None], 0)
    place = Place(scope.name, "again", 0, 0, 0)
    writer.commit([Written(1, place, attempt(b"again", run="again"))], 0)
    assert visible() == [b"again"]


class _Killed(BaseException):
    """The driver died."""


_STEPS = ("take_over", "survey", "check_open", "record", "finish", "sweep")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", _STEPS)
def test_a_driver_that_dies_between_two_steps(decider, attempt, visible, step, when):
    """The one after it writes the batch again, and decides; whoever decided first is heard."""

    class Dying(Decider):
        """Dies at its last visit of the step: ``finish`` and ``sweep`` are come to twice or late."""

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
    attempt(b"orphan", 1)
    with pytest.raises(_Killed):
        decider(kind=Dying).commit(1, first)
    is_decided = step in ("finish", "sweep") or (step, when) == ("record", "after")
    again = [attempt(b"2a", 1, run="again"), attempt(b"2b", 1, run="again")]
    decided = decider().commit(1, again)
    assert decided == Decision(1, tuple(sorted(first if is_decided else again)))
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
        first.survey,
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
def test_a_decider_that_was_too_slow_begins_again(decider, attempt, visible, code):
    """It stopped for a while amid its own transaction, and the broker has aborted that."""

    class Slow(Decider):
        rounds = 0

        def record(self, decision):
            self.rounds += 1
            if self.rounds == 1:
                raise ApiError(code, "the coordinator has ended the transaction")
            super().record(decision)

    one = decider(kind=Slow)
    mine = attempt(b"mine")
    assert one.commit(0, [mine]).transactions == (mine,)
    assert one.rounds == 2
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
        def survey(self, run=None):
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
        def sweep(self, leftovers):
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


def test_a_batch_write_finishes_what_dead_ones_have_left(metadata, admin, decider, attempt, visible, make_topic):
    """One died before it decided, one after; a name that looks like theirs is left alone."""
    runs = [uuid.uuid4().hex[:16] for _ in range(2)]
    scopes = [Scope(unnamed_scope(run), lasts=False) for run in runs]
    undecided, decided = (
        attempt(value, of=of, run=run) for value, of, run in zip((b"u", b"d"), scopes, runs, strict=True)
    )
    named = attempt(b"named", of=Scope(unnamed_scope("x")), run="y")
    one = decider(scopes[1])
    one.take_over()
    one.record(Decision(0, (decided,)))
    all_ids = {each.transactional_id for each in (undecided, decided, named)}

    def are_old():
        return all_ids <= {each.transactional_id for each in admin.list_transactions(open_longer_ms=1)}

    eventually(are_old, what="all have been open for longer than a millisecond")
    options = {"kafka.bootstrap.servers": metadata.config.bootstrap_servers, "topic": make_topic(suffix="-2")}
    schema = StructType().add("value", "binary")
    SparklogWriter(WriteOptions.from_spark(options), schema, overwrite=False).commit([None])
    assert set(admin.open_transactions(all_ids)) == all_ids
    soon = WriteOptions.from_spark({**options, "abandonedAfter": "1ms"})
    SparklogWriter(soon, schema, overwrite=False).commit([None])
    assert set(admin.open_transactions(all_ids)) == {named.transactional_id}
    with pytest.raises(DataSourceError, match="SPARKLOG_TRANSACTION_ENDED"):
        decider(scopes[0]).commit(0, [undecided])  # its driver lives after all
    decider(Scope(unnamed_scope("x"))).finish_all()
    assert visible() == [b"d"]


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
    assert log.last(Scope(scope.name, lasts=False)) == Decision()


def test_a_decision_whose_record_is_gone_counts_still(decider, attempt, scope, visible, caplog, monkeypatch):
    """Somebody has given the topic a retention."""
    decider().commit(7, [attempt(b"seven")])
    monkeypatch.setattr(DecisionLog, "_of_scope", lambda *_: None)
    assert decider().commit(7, [attempt(b"again")]) == Decision(7)
    assert f"the record of batch 7 of scope {scope.name} is gone" in caplog.text
    decider().commit(8, [attempt(b"eight")])
    assert visible() == [b"seven", b"eight"]


def test_partitions_that_are_added_to_the_decisions_stay_empty(metadata, admin, scope):
    class Grown:
        def __getattr__(self, name):
            return getattr(metadata, name)

        def topic(self, name):
            topic = metadata.topic(name)
            return topic._replace(partitions=(*topic.partitions, *topic.partitions))

    scopes = [Scope(f"{scope.name}-{number}") for number in range(20)]
    places = [DecisionLog(metadata, admin).place(each) for each in scopes]
    assert [DecisionLog(Grown(), admin).place(each) for each in scopes] == places


def test_a_write_that_nobody_comes_back_to(metadata, decider, admin, attempt, visible, scope):
    once = Scope(f"{scope.name}/once", lasts=False)
    written = attempt(b"once", of=once)
    one = decider(once)
    one.commit(0, [written])
    one.forget()
    assert DecisionLog(metadata, admin).last_batch(once) == 0
    aborted = Scope(f"{scope.name}/aborted", lasts=False)
    decider(aborted).abort(0, [attempt(b"aborted", of=aborted)], "run")
    assert DecisionLog(metadata, admin).last_batch(aborted) == 0
    assert visible() == [b"once"]


def test_who_comes_too_late_with_rows_is_told_so(metadata, decider, attempt, visible, scope):
    late, replay = attempt(b"late", 1), Written(0, Place(scope.name, "run", 1, 0, 0), None)
    decider().commit(2, [attempt(b"two", 2)])
    sink = Sink(WriteOptions(metadata.config, None))
    sink.commit(scope.name, 1, [replay, None])
    with pytest.raises(DataSourceError, match="SPARKLOG_BATCH_OVERTAKEN"):
        sink.commit(scope.name, 1, [replay, Written(1, replay.place, late)])
    assert visible() == [b"two"]


def test_a_batch_that_nobody_knows_cannot_be_written_once():
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNKNOWN_BATCH.*at-least-once"):
        stream_place("checkpoint")


def test_names_of_attempts():
    name = AttemptName("a/b c.d", "run-1", 3, 2, 1, 4)
    assert name.transactional_id == "sparklog-spark/a%2Fb%20c.d/run-1/3-2-1-4"
    assert AttemptName.parse(name.transactional_id) == name
    for other in ("payments", "sparklog-spark/x", "sparklog-spark/a/b/c", "sparklog-spark/a/b/1-2-3-x"):
        assert AttemptName.parse(other) is None


def test_a_decision_reads_back():
    decision = Decision(5, (PreparedTransaction("a", 1, 2), PreparedTransaction("ü", 3, 4)))
    assert Decision.decode(decision.encode()) == decision
    for other in (b"{}", b"nonsense", b'{"version":2,"batch":1,"transactions":[]}', b'{"version":1}'):
        with pytest.raises(DataSourceError, match="SPARKLOG_UNKNOWN_DECISION"):
            Decision.decode(other)
