"""``sparklog writes``: what dead drivers left, shown and finished."""

import uuid

import pytest

from sparklog.client.admin import Admin
from sparklog.client.config import ClientConfig
from sparklog.client.fetcher import fetch_range
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.offsets import latest_offsets
from sparklog.client.transactional_batches import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.spark.attempt_names import AttemptName
from sparklog.spark.decider import Decider
from sparklog.spark.decisions import Decision, Scope
from sparklog.structs import IsolationLevel, TopicPartition

pytestmark = pytest.mark.integration
COMMITTED = IsolationLevel.READ_COMMITTED
COLUMNS = ["scope", "batch", "decided", "open for s", "partition", "transactional id", "topics' partitions"]


@pytest.fixture
def config(bootstrap):
    return ClientConfig(bootstrap_servers=bootstrap)


@pytest.fixture
def left(here, config, topic):
    """Leaves the transactions of a driver open that died when it had decided batch 4: two of it, one of no batch."""
    assert here("topic", "create", topic).status == 0
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
