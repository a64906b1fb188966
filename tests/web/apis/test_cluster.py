"""The cluster and its brokers, as a real one tells."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.structs import BrokerId, Endpoint, LeaderEpoch
from sparklog.web.apis.cluster import cluster

pytestmark = pytest.mark.integration


def test_the_numbers_are_those_of_the_admin_client(browser, admin, make):
    make(3)
    told = browser.rows("/api/cluster")
    info = admin.describe_cluster()
    assert told["cluster_id"] == info.cluster_id
    assert told["controller"] == info.controller
    (broker,) = told["brokers"]
    endpoint = info.brokers[broker["id"]]
    assert (broker["host"], broker["port"]) == endpoint
    assert broker["is_controller"]
    assert broker["error"] is None
    assert broker["leads"] == broker["replicas"] == told["partitions"]
    assert told["under_replicated"] == told["without_leader"] == broker["out_of_sync"] == 0


def test_a_brokers_settings_have_their_sources_and_no_secrets(browser, admin):
    (broker,) = admin.describe_cluster().brokers
    told = {each["name"]: each for each in browser.rows(f"/api/broker/settings?id={broker}")}
    assert (told["broker.id"]["value"], told["broker.id"]["read_only"]) == (str(broker), True)
    assert {name for name, each in told.items() if not each["is_default"]} == {
        each.name for each in admin.broker_configs(broker) if each.source != 5
    }
    assert told["log.cleaner.enable"]["source"] == "default"
    assert all(each["value"] is None for each in told.values() if each["sensitive"])


@pytest.mark.parametrize("number", ["", "x", "-1", "1" * 30])
def test_a_broker_that_is_no_number_is_refused(browser, number):
    answer = browser.get(f"/api/broker/settings?id={number}")
    assert answer.status == 400
    assert "id must be a whole number" in answer.json["error"]["message"]


def test_a_broker_that_is_gone_is_shown_with_its_replicas():
    partition = PartitionInfo(0, BrokerId(1), LeaderEpoch(3), (2, 1), (1,), (2,))
    topics = {"t": TopicInfo("t", UUID(int=1), False, (partition,))}
    info = ClusterInfo("id", BrokerId(1), {BrokerId(1): Endpoint("h", 9092)}, topics, {})
    told = {"metadata": info, "releases": ({1: "3.9"}, {})}

    async def get(name, _):
        return told[name]

    admin = SimpleNamespace(describe_cluster=None, releases=None)
    visitor: Any = SimpleNamespace(fresh=SimpleNamespace(get=get), admin=admin)
    here, gone = asyncio.run(cluster(visitor, None))["brokers"]
    assert (here["id"], here["host"], here["error"], here["out_of_sync"]) == (1, "h", None, 0)
    assert (gone["id"], gone["host"], gone["port"], gone["error"]) == (2, None, None, "it is not there")
    assert (gone["replicas"], gone["out_of_sync"], gone["leads"]) == (1, 1, 0)
