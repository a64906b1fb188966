import asyncio
import json

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.takeover.findings import findings
from sparklog.takeover.survey import survey
from sparklog.testing.broker import BrokerHarness
from sparklog.zk import znodes
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration


@pytest.fixture
def zk(chroot):
    zk = ZkClient(chroot, session_timeout=10, on_session=lambda _: None)
    yield zk
    zk.close()


@pytest.fixture
def cluster(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot, settings={"inter.broker.protocol.version": "3.9"}) as broker:
        yield broker


def put(zk, path, value):
    zk.kazoo.ensure_path(path.rpartition("/")[0])
    zk.kazoo.create(path, json.dumps(value).encode())


def test_a_running_broker_tells_its_settings(cluster, zk):
    found = asyncio.run(survey(zk, ClientConfig()))
    (broker,) = found.brokers
    assert broker.settings["inter.broker.protocol.version"] == "3.9"
    assert not broker.silence
    assert broker.is_recent
    assert "inter.broker.protocol.version" not in broker.by_default
    assert "log.segment.bytes" in broker.by_default
    assert findings(found) == []


def test_what_the_znodes_say_is_found(zk):
    put(zk, znodes.CONTROLLER, {"brokerid": 3000, "kraftControllerEpoch": 4})
    put(zk, "/kafka-acl/Topic/clicks", {"version": 1, "acls": []})
    put(zk, "/config/users/anna", {"version": 1, "config": {"producer_byte_rate": "1"}})
    put(zk, "/config/users/bert", {"version": 1, "config": {}})
    put(zk, "/config/users/bert/clients/loader", {"version": 1, "config": {"consumer_byte_rate": "1"}})
    put(zk, "/feature", {"version": 1, "status": 1, "features": {"x": 1}})
    put(zk, "/admin/reassign_partitions", {"version": 1, "partitions": []})
    put(
        zk,
        "/brokers/topics/clicks",
        {"version": 2, "partitions": {"0": [1], "1": [1, 2]}, "adding_replicas": {"1": [2]}},
    )
    put(zk, "/brokers/topics/clicks/partitions/0/state", {"leader": -1, "isr": [1]})
    put(zk, "/brokers/topics/clicks/partitions/1/state", {"leader": 1, "isr": [1]})
    found = asyncio.run(survey(zk, ClientConfig()))
    (topic,) = found.topics
    assert (topic.has_id, topic.is_moving, topic.single, topic.lagging, topic.leaderless) == (
        False,
        True,
        (0,),
        (1,),
        (0,),
    )
    assert (found.is_migrating, found.features, found.acls, found.quotas) == (True, ("x",), 1, 2)
    assert found.is_reassigning


def test_a_broker_that_does_not_answer_is_told_of(zk):
    znode = {"endpoints": ["SSL://a:1"], "listener_security_protocol_map": {"SSL": "SSL"}, "host": None, "port": -1}
    put(zk, znodes.broker_path(4), znode)
    (broker,) = asyncio.run(survey(zk, ClientConfig())).brokers
    assert broker.silence == "it has no listener of PLAINTEXT: --command-config FILE says how clients speak to it"
    assert broker.listeners == (("SSL", "SSL"),)
