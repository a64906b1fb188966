"""A broker that comes back to a cluster that has another topic of the name, or none, serves nothing of the old one."""

import re
from dataclasses import replace
from uuid import UUID

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.zk import znodes
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

TP, KEPT = TopicPartition("again", 0), TopicPartition("kept", 0)


@pytest.fixture
def zk(chroot):
    client = ZkClient(chroot, session_timeout=10.0, on_session=lambda event: None)
    yield client
    client.close()


@pytest.fixture
def broker(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot, settings={"auto.create.topics.enable": "false"}) as running:
        with wire.connect(running.address) as connection:
            for tp in (TP, KEPT):
                assert wire.create_topic(connection, tp.topic)[0] is ErrorCode.NONE
                assert wire.produce(connection, tp, wire.batch_of(b"old"))[0] is ErrorCode.NONE
        yield running


@pytest.mark.parametrize("made_again", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_a_topic_deleted_behind_a_brokers_back_is_set_aside(broker, zk, made_again, killed):
    home = broker.spec.data_dir
    broker.kill() if killed else broker.stop()
    old = zk.topics.assignment(TP.topic)
    zk.topics.forget(TP.topic, zk.kazoo.get(znodes.CONTROLLER_EPOCH)[1].version)
    if made_again:
        assert zk.topics.create(replace(old, topic_id=UUID(int=5)), {})
    broker.start()
    eventually(lambda: list(home.glob("again-0.*-stray")))
    said = rf"ERROR .*{home / 'again-0'} is set aside as again-0\.[0-9a-f]+-stray: it belongs to topic id "
    eventually(lambda: re.search(said, broker.output()))
    with wire.connect(broker.address) as connection:
        eventually(lambda: wire.fetch(connection, KEPT, 0).error is ErrorCode.NONE)
        assert wire.read_all(connection, KEPT) == [b"old"]
        if not made_again:
            assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
        eventually(lambda: wire.fetch(connection, TP, 0).error is ErrorCode.NONE)
        assert wire.read_all(connection, TP) == []
        assert wire.produce(connection, TP, wire.batch_of(b"new"))[1] == 0
