"""``sparklog writes``: what dead drivers left, shown and finished."""

import uuid

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Decision, DecisionLog, Scope
from sparklog.structs import IsolationLevel, TopicPartition

pytestmark = pytest.mark.integration
COMMITTED = IsolationLevel.READ_COMMITTED
COLUMNS = ["scope", "batch", "decided", "open for s", "partition", "transactional id", "topics' partitions"]


@pytest.fixture
def config(bootstrap):
    return ClientConfig(bootstrap_servers=bootstrap)


@pytest.fixture
def leave(here, config, topic):
    """Leaves the transactions of a driver open that died when it had decided batch 4: two of it, one of no batch."""
    assert here("topic", "create", topic).status == 0

    def die():
        scope, tp = f"query {uuid.uuid4().hex}", TopicPartition(topic, 0)
        written = []
        with ClusterMetadata(config) as cluster, Admin(config) as admin:
            for task in range(3):
                transaction = admin.init_prepared(AttemptName(scope, "run", task, 0, 0).transactional_id, 60_000)
                admin.add_to_prepared(transaction, [tp])
                builder = RecordBatchBuilder(is_transactional=True)
                builder.append(SystemClock().now_ms(), None, b"%d" % task)
                with TransactionalBatchProducer(cluster, transaction, lambda _: None) as producer:
                    producer.send(tp, bytearray(builder.build()))
                written.append(transaction)
        with Decider(config, Scope(scope)) as decider:
            decider.take_over()
            decider.record(Decision(4, tuple(written[:2])))
        return scope, written

    return die


@pytest.fixture
def left(leave):
    """What one such driver left."""
    return leave()


def _rows(result):
    assert (result.status, result.err) == (0, "")
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert lines[0] == COLUMNS
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]


def test_what_is_open_is_listed(here, topic, left):
    scope, written = left
    rows = _rows(here("writes", "list", scope))
    assert {row["transactional id"]: (row["batch"], row["decided"]) for row in rows} == {
        written[0].transactional_id: ("4", "yes"),
        written[1].transactional_id: ("4", "yes"),
        written[2].transactional_id: ("-", "no"),
    }
    assert {(row["scope"], row["topics' partitions"]) for row in rows} == {(scope, f"{topic}-0")}
    assert sorted(row["partition"] for row in rows) == ["0", "1", "2"]
    assert {row["transactional id"] for row in _rows(here("writes", "list"))} >= {each[0] for each in written}
    assert _rows(here("writes", "list", "another")) == []
    assert _rows(here("writes", "list", "--open-for", 3600, scope)) == []


def test_what_is_decided_is_committed_and_the_rest_aborted(here, config, topic, left):
    scope, _ = left
    asked = here("writes", "finish", scope)
    assert (asked.status, "--yes" in asked.err) == (2, True)
    done = here("writes", "finish", scope, "--yes")
    assert (done.status, done.out, done.err) == (0, f"{scope}: 2 committed, 1 aborted\n", "")
    assert _rows(here("writes", "list", scope)) == []
    again = here("writes", "finish", scope, "--yes")
    assert (again.status, again.out) == (0, "nothing is open\n")
    tp = TopicPartition(topic, 0)
    with ClusterMetadata(config) as cluster:
        end = latest_offsets(cluster, [tp], COMMITTED)[tp]
        assert end == latest_offsets(cluster, [tp])[tp]
        batches = fetch_range(cluster, tp, 0, end, isolation=COMMITTED)
        assert [bytes(record.value) for batch in batches for record in iter_records(batch)] == [b"0", b"1"]


def test_a_scope_that_is_none_is_named_and_nothing_is_finished(here, left):
    scope, _ = left
    refused = here("writes", "finish", scope, "no such", "--yes")
    assert (refused.status, refused.out) == (1, "")
    assert "nobody has written under 'no such'" in refused.err
    assert scope not in refused.err
    assert len(_rows(here("writes", "list", scope))) == 3


def test_a_person_declares_the_last_batch(here, config, left):
    scope, written = left
    with Admin(config) as admin:
        assert admin.end_prepared(written[:2], commit=True) == [True, True]
    asked = here("writes", "declare", scope, "--last-batch", 7)
    assert (asked.status, "--yes" in asked.err) == (2, True)
    done = here("writes", "declare", scope, "--last-batch", 7, "--yes")
    assert (done.status, done.out, done.err) == (0, f"{scope}: batch 7 is the last one\n", "")
    assert {row["transactional id"]: row["decided"] for row in _rows(here("writes", "list", scope))} == {
        written[2].transactional_id: "no"
    }
    with Decider(config, Scope(scope)) as decider:
        assert decider.take_over() == Decision(7)


def test_a_scope_that_nobody_knows_is_declared_by_force_alone(here, config):
    scope = f"misspelt {uuid.uuid4().hex}"
    refused = here("writes", "declare", scope, "--last-batch", 7, "--yes")
    assert (refused.status, refused.out) == (1, "")
    assert "check how it is spelt, or add --force" in refused.err
    assert here("writes", "declare", scope, "--last-batch", 7, "--yes", "--force").status == 0
    with Decider(config, Scope(scope)) as decider:
        assert decider.take_over() == Decision(7)


def test_a_scope_of_which_only_the_decision_is_known_is_declared(here, config, monkeypatch):
    scope = f"quiet {uuid.uuid4().hex}"
    with Decider(config, Scope(scope)) as decider:
        decider.commit(6, [])
    monkeypatch.setattr("sparklog.spark.write.open_writes.unknown_scopes", lambda _, scopes: list(scopes))
    assert here("writes", "declare", scope, "--last-batch", 7, "--yes").status == 0


def _lose_decision(config, scope):
    """Somebody has written over where the group says that the decision is."""
    with ClusterMetadata(config) as cluster, Admin(config) as admin:
        place = DecisionLog(cluster, admin).partition_of(Scope(scope))
    with Producer(
        {"bootstrap.servers": config.bootstrap_servers, "transactional.id": f"stranger to {scope}"}
    ) as stranger:
        stranger.init_transactions()
        stranger.begin_transaction()
        stranger.send_offsets_to_transaction({place: (1 << 40, -1, "4")}, Scope(scope).decider_id)
        stranger.commit_transaction()


def test_what_cannot_be_read_is_listed_and_not_finished(here, config, left, caplog):
    scope, written = left
    _lose_decision(config, scope)
    listed = here("writes", "list", scope)
    assert listed.out.count("unknown") == 3
    assert "SPARKLOG_DECISION_LOST" in caplog.text
    refused = here("writes", "finish", scope, "--yes")
    assert (refused.status, refused.out) == (1, "")
    assert "--last-batch 4" in refused.err
    with Admin(config) as admin:
        assert len(admin.open_transactions([each.transactional_id for each in written])) == 3


def test_what_cannot_be_read_keeps_nothing_else_from_being_finished(here, config, leave):
    (lost, kept), (other, ended) = sorted([leave(), leave()])
    _lose_decision(config, lost)
    done = here("writes", "finish", lost, other, "--yes")
    assert (done.status, done.out) == (1, f"{other}: 2 committed, 1 aborted\n")
    assert "SPARKLOG_DECISION_LOST" in done.err
    with Admin(config) as admin:
        assert set(admin.open_transactions([each.transactional_id for each in [*kept, *ended]])) == {
            each.transactional_id for each in kept
        }
