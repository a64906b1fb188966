"""Hostile histories without Spark: drivers, tasks and brokers die or stop at any step, and each row is there once.

A history is drawn from a seed. Its batches are those of a query, or of named writes; batch N has rows 2N and 2N + 1,
a task each. A driver that dies or is refused is followed by another, which goes on after the last batch that the log of
commits has. One that stops at a step goes on from there after others have decided.
"""

import random
import uuid
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.errors import DataSourceError, SparklogError
from sparklog.record.records import iter_records
from sparklog.spark.write import decision_index
from sparklog.spark.write.attempt import _Attempt
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Scope
from sparklog.spark.write.options import WriteOptions
from sparklog.spark.write.task_attempt import TaskAttempt
from sparklog.spark.write.writer import Sink
from sparklog.structs import DECISIONS_TOPIC, IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness, SecureClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PARTITIONS, BATCHES = 2, 8
_STEPS = ("take_over", "list_open", "check_open", "record", "finish", "abort_orphans")


class _Killed(BaseException):
    """The process is gone: it says and ends nothing any more."""


class _HostileDecider(Decider):
    """Something may happen before and after each of its steps, and between a decision's record and its commit."""

    history: Any

    def _write(self, decision):
        producer = self._producer
        commit = producer.commit_transaction

        def commit_transaction():
            if self.history.is_patient:
                self.history.strikes()
            commit()
            self.history.strikes()

        producer.commit_transaction = commit_transaction
        super()._write(decision)

    def end(self, transactions, *, commit):
        chosen = sorted(transactions)
        if commit and chosen and self.history.happens(0.1):
            self._admin.end_prepared(chosen[:1], commit=True)
            raise _Killed
        return super().end(transactions, commit=commit)


def _hostile(step):
    def call(self, *args, **kwargs):
        self.history.strikes()
        result = getattr(Decider, step)(self, *args, **kwargs)
        self.history.strikes()
        return result

    return call


for _step in _STEPS:
    setattr(_HostileDecider, _step, _hostile(_step))


class _History(Sink):
    """What became of one seed, and the sink of all its drivers.

    Where it is patient a driver may die amid the transaction of its decision: others wait then until that times out.
    """

    def __init__(self, client, administrator, topic, seed, *, is_patient, restart=None, clean=None):
        options = {f"kafka.{name}": value for name, value in client.items()}
        super().__init__(WriteOptions.for_batch({**options, "topic": topic}))
        self.chance = random.Random(seed)
        self.scope = f"history-{uuid.uuid4().hex}"
        self.is_query = seed % 2 == 0
        self.committed = -1
        self.depth = 0
        self.is_quiet = False
        self.deciders = []
        self.told = []
        self.is_patient = is_patient
        self.restart = restart
        self.clean = clean
        self.admin = Admin(administrator)

    def happens(self, share):
        return not self.is_quiet and self.chance.random() < share

    def strikes(self):
        """The driver that is here dies, or stops while another goes on, or a broker is restarted, or cleans."""
        if self.happens(0.04):
            raise _Killed
        if self.depth < 2 and self.happens(0.04):
            self.depth += 1
            with suppress(_Killed, SparklogError):
                self.drive(self.chance.randint(1, 2))
            self.depth -= 1
        if self.restart is not None and self.happens(0.01):
            self.restart()
        if self.clean is not None and self.happens(0.04):
            self.clean()

    def decider(self, scope, *, is_resumable):
        made = _HostileDecider(self._options.client, Scope(scope, is_resumable))
        made.history = self
        made.close, close = lambda: None, made.close  # the dead do not hang up
        self.deciders.append(close)
        return made

    def drive(self, most=BATCHES):
        """A driver's life: as many batches from where the log of commits ends."""
        run = uuid.uuid4().hex
        last = BATCHES if self.is_quiet else BATCHES - 1  # which ends what those before it have left
        for batch in range(self.committed + 1, min(self.committed + 1 + most, last)):
            messages = [self._task(run, batch, task) for task in range(2)]
            self.commit(self.scope, batch, messages, run=run if self.is_query else None)
            self.strikes()
            self.committed = max(self.committed, batch)
            if self.happens(0.1):
                with suppress(SparklogError):  # as when its offsets expire
                    self.admin.delete_groups([Scope(self.scope).decider_id])
            run = run if self.is_query else uuid.uuid4().hex

    def _task(self, run, batch, task):
        """Its attempts: some die with a row written, some are doubled, one is heard."""
        rows = pa.record_batch({"value": [b"%d" % (2 * batch + task)]})
        attempts = [self._attempt(run, batch, task, number, rows) for number in range(self.chance.choice((1, 1, 2)))]
        self.strikes()
        return self.chance.choice(attempts)

    def _attempt(self, run, batch, task, number, rows):
        if self.happens(0.1):
            with suppress(_Killed):
                self.write(TaskAttempt(self.scope, run, batch, task, number + 10), _breaks_after(rows))
        return self.write(TaskAttempt(self.scope, run, batch, task, number), iter([rows]))

    def live(self):
        """Driver after driver until all batches are committed; then one more, to whom nothing happens."""
        while self.committed < BATCHES - 2:
            try:
                self.drive()
            except _Killed:
                continue
            except DataSourceError as error:
                self.told.append(error)
        self.is_quiet = True
        self.drive()

    def close(self):
        for close in self.deciders:
            close()
        self.admin.close()


def _breaks_after(rows):
    yield rows
    raise _Killed


@pytest.fixture(autouse=True)
def _decisions_are_indexed_often(monkeypatch):
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)


@pytest.fixture(autouse=True)
def _dead_tasks_abort_nothing(monkeypatch):
    abort = _Attempt.abort
    monkeypatch.setattr(_Attempt, "write", _unless_killed(_Attempt.write))
    monkeypatch.setattr(_Attempt, "abort", lambda self: None if getattr(self, "is_dead", False) else abort(self))


def _unless_killed(write):
    def call(self, batches):
        try:
            return write(self, batches)
        except _Killed:
            self.is_dead = True
            raise

    return call


def _values(client, topic):
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = IsolationLevel.READ_COMMITTED
    with ClusterMetadata(ClientConfig.from_properties(client)) as cluster:
        eventually(lambda: latest_offsets(cluster, tps, committed) == latest_offsets(cluster, tps), what="all is ended")
        ends = latest_offsets(cluster, tps)
        batches = (batch for tp in tps for batch in fetch_range(cluster, tp, 0, ends[tp], isolation=committed))
        return sorted(int(record.value) for batch in batches for record in iter_records(batch))


def _happens(client, administrator, topic, seed, **options):
    history = _History(client, administrator, topic, seed, **options)
    try:
        history.live()
    finally:
        history.close()
    expected = ("SPARKLOG_TRANSACTION_ENDED", "SPARKLOG_BATCH_OVERTAKEN")
    assert not [error for error in history.told if error.error_code not in expected]
    assert _values(client, topic) == list(range(2 * BATCHES))


@pytest.fixture
def client(any_client):
    return any_client


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_a_hostile_history(client, administrator, make_topic, seed):
    _happens(client, administrator, make_topic(PARTITIONS), seed, is_patient=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_hostile_histories(client, administrator, make_topic):
    """On a secure cluster a few."""
    for seed in range(4, 6 if "security.protocol" in client else 28):
        _happens(client, administrator, make_topic(PARTITIONS, suffix=f"-{seed}"), seed, is_patient=True)


def _clients_of(cluster):
    """What is told to a client, and to an administrator."""
    if isinstance(cluster, SecureClusterHarness):
        return cluster.client("spark"), cluster.client("admin")
    open_to_all = {"bootstrap.servers": cluster.bootstrap_servers}
    return open_to_all, open_to_all


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [(ClusterHarness, range(100, 106)), (SecureClusterHarness, range(106, 108))],
    ids=["sparklog", "secure"],
)
def test_hostile_histories_with_restarts(tmp_path, kind, seeds):
    """The broker is killed between any two steps; all the scopes share a partition of the decisions."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000}
    with kind(tmp_path / "cluster", settings=settings) as cluster:

        def restart():
            cluster.kill_broker(0)
            cluster.start_broker(0)

        client, administrator = _clients_of(cluster)
        with Admin(administrator) as admin:
            admin.create_topics([NewTopic(DECISIONS_TOPIC, 1, 1, {"cleanup.policy": "compact"})])
            for seed in seeds:
                admin.create_topics([NewTopic(f"out-{seed}", PARTITIONS)])
                _happens(client, administrator, f"out-{seed}", seed, is_patient=True, restart=restart)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [(ClusterHarness, range(200, 208)), (SecureClusterHarness, range(208, 210))],
    ids=["sparklog", "secure"],
)
def test_hostile_histories_over_decisions_that_are_cleaned(tmp_path, kind, seeds):
    """Between any two steps, with transactions of others open; all the scopes share a partition of the decisions."""
    gone = []
    with kind(tmp_path / "cluster") as cluster:
        client, administrator = _clients_of(cluster)
        with Admin(administrator) as admin:

            def clean():
                ((_, outcome),) = admin.compact([DECISIONS_TOPIC]).items()
                assert outcome.error is None
                gone.append(0 if outcome.run is None else outcome.run.messages_before - outcome.run.messages_after)

            admin.create_topics([NewTopic(DECISIONS_TOPIC, 1, 1, {"cleanup.policy": "compact"})])
            for seed in seeds:
                admin.create_topics([NewTopic(f"out-{seed}", PARTITIONS)])
                how = {"is_patient": seed % 3 == 0, "clean": clean}
                _happens(client, administrator, f"out-{seed}", seed, **how)
    assert sum(each > 0 for each in gone) > len(seeds)
