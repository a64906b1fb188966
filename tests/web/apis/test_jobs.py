import time
import uuid

import pytest

from sparklog.client import Producer
from sparklog.client.admin.admin import OffsetAndMetadata
from sparklog.client.cluster.config import ClientConfig
from sparklog.cluster.offload_group import OffloadNote, group_of
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Decision, Scope
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


def test_how_far_a_compacted_topic_is_cleaned(browser, admin, bootstrap, make):
    name = make(1, cleanup_policy="compact")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(10):
            producer.send(name, "value", key="key").result(60)
    admin.compact([name])
    (told,) = browser.rows(f"/api/jobs/compaction?search={name}")["rows"]
    assert (told["topic"], told["partition"], told["error"]) == (name, 0, None)
    assert told["last"]["messages_before"] >= 10 > told["last"]["messages_after"]
    assert 0 <= told["dirty"] <= 1
    assert not told["is_under_way"]


def test_cleaners_moves_and_offloads_are_rows_or_errors(browser, admin):
    told = browser.rows("/api/jobs")
    assert [each["broker"] for each in told["cleaners"]["rows"]] == sorted(admin.describe_cluster().brokers)
    assert told["cleaners"]["rows"][0]["is_enabled"]
    assert told["moves"] == {"rows": [], "error": None}
    assert told["offloads"]["error"] is None


def row_of(told, name, value):
    return next((each for each in told["rows"] if each[name] == value), None)


def test_how_far_an_offload_has_come_into_which_table_and_since_when_the_rest_waits(browser, admin, bootstrap, make):
    name = make(2)
    before = int(time.time() * 1000)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(name, "value", partition=number % 2, timestamp=before - 60_000 + number).result(60)
    group, note = group_of(name, ""), OffloadNote(uuid.uuid4(), "/data/clicks").to_metadata()
    offsets = {TopicPartition(name, 0): 5, TopicPartition(name, 1): 2}
    admin.alter_group_offsets(group, {tp: OffsetAndMetadata(at, metadata=note) for tp, at in offsets.items()})
    told = browser.rows("/api/jobs")["tables"]
    assert told["error"] is None
    assert row_of(told, "topic", name) == {
        "topic": name,
        "group": group,
        "place": "/data/clicks",
        "partitions": 2,
        "lag": 3,
        "share": 0.7,
        "waits_since_ms": before - 60_000 + 5,
    }


def test_a_topic_that_waits_for_an_offload_that_never_told_anything_is_shown(browser, make):
    name = make(1, sparklog_offload_required="true", sparklog_offload_max_bytes=1 << 20)
    told = row_of(browser.rows("/api/jobs")["tables"], "topic", name)
    assert (told["group"], told["place"], told["partitions"], told["lag"]) == (group_of(name, ""), None, 0, None)


def test_prepared_batches_are_decided_or_not(browser, admin, bootstrap, make):
    name, scope = make(1), f"query {uuid.uuid4().hex}"
    written = []
    for task in range(3):
        transaction = admin.init_prepared(AttemptName(scope, "run", task, 0, 0).transactional_id, 60_000)
        admin.add_to_prepared(transaction, [TopicPartition(name, 0)])
        written.append(transaction)
    told = row_of(browser.rows("/api/jobs")["writes"], "scope", scope)
    assert (told["open"], told["decided"], told["batch"], told["error"]) == (3, 0, None, None)
    assert (told["topics"], told["partitions"]) == (name, 1)
    with Decider(ClientConfig(bootstrap_servers=bootstrap), Scope(scope)) as decider:
        decider.take_over()
        decider.record(Decision(4, tuple(written[:2])))
    told = row_of(browser.rows("/api/jobs")["writes"], "scope", scope)
    assert (told["open"], told["decided"], told["batch"], told["share"]) == (3, 2, 4, 0.0)
    admin.end_prepared([written[0]], commit=True)
    told = row_of(browser.rows("/api/jobs")["writes"], "scope", scope)
    assert (told["open"], told["decided"], told["share"]) == (2, 1, 0.5)
    admin.end_prepared([written[1]], commit=True)
    admin.end_prepared([written[2]], commit=False)
    assert row_of(browser.rows("/api/jobs")["writes"], "scope", scope) is None
