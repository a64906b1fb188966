"""Five batches in flight are written and their answers lost, then the broker starts again: each is there once."""

import pytest
from integration import wire
from integration.proxy import Proxy

from sparklog.client import Producer
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
ACKNOWLEDGED = 1
LOST = 5


@pytest.mark.parametrize("end", [BrokerHarness.stop, BrokerHarness.kill], ids=["clean stop", "killed"])
def test_each_is_there_once_and_all_are_acknowledged(tmp_path, chroot, end):
    with BrokerHarness(tmp_path, chroot) as broker, Proxy(broker.spec.port) as proxy:
        with wire.connect(broker.address) as connection:
            assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
        values = [b"%d" % number for number in range(ACKNOWLEDGED + LOST + 1)]
        with Producer(bootstrap_servers=proxy.address, batch_size=1, linger_ms=0) as producer:
            producer.send(TP.topic, values[0]).result(60)
            proxy.mute.set()
            futures = [producer.send(TP.topic, value) for value in values[1:-1]]
            with wire.connect(broker.address) as connection:
                eventually(
                    lambda: wire.list_offset(connection, TP, -1)[1] == ACKNOWLEDGED + LOST, 60, "all to be written"
                )
            assert not any(future.done() for future in futures)
            end(broker)
            proxy.mute.clear()
            broker.start()
            futures.append(producer.send(TP.topic, values[-1]))
            assert [future.result(60).offset for future in futures] == [1, 2, 3, 4, 5, 6]
        with wire.connect(broker.address) as connection:
            assert wire.read_all(connection, TP) == values
