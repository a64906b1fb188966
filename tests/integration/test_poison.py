"""What no reader could read is not stored: each such batch is refused, and the partition goes on."""

import pytest
from integration import poison, wire

from sparklog.client import Consumer, Producer
from sparklog.errors import ErrorCode

pytestmark = pytest.mark.integration


def test_every_poison_is_refused_and_nothing_of_it_is_there(connection, tp):
    good = poison.batch(poison.records(1, b"good"))
    assert wire.produce(connection, tp, good)[:2] == (ErrorCode.NONE, 0)
    answers = {each.name: wire.produce(connection, tp, each.data) for each in poison.poisons()}
    assert len(answers) > 100
    assert {name: code for name, (code, _, _) in answers.items() if code is not ErrorCode.INVALID_RECORD} == {}
    assert all(offset == -1 and message for _, offset, message in answers.values())
    assert wire.produce(connection, tp, good)[:2] == (ErrorCode.NONE, 1)
    assert wire.read_all(connection, tp) == [b"good", b"good"]


@pytest.mark.parametrize("settings", [{"compression.type": "gzip"}, {"compression.type": "uncompressed"}])
def test_neither_does_a_topic_take_it_that_compresses_anew(connection, topic, settings):
    assert wire.create_topic(connection, topic, configs=settings)[0] is ErrorCode.NONE
    tp = wire.TopicPartition(topic, 0)
    codes = {wire.produce(connection, tp, each.data)[0] for each in poison.poisons()}
    assert codes == {ErrorCode.INVALID_RECORD}
    assert wire.list_offset(connection, tp, -1)[1] == 0


@pytest.mark.parametrize("codec", poison.CODECS, ids=lambda codec: codec.name.lower())
def test_good_batches_of_every_codec_are_read_to_the_end(bootstrap, make_topic, codec):
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap, compression_type=codec.name.lower()) as producer:
        sent = [b"%d" % number * (number % 50) for number in range(3000)]
        for value in sent:
            producer.send(topic, value, key=b"k", headers={"h": b"1", "n": None})
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=topic) as consumer:
        consumer.subscribe([topic])
        found = []
        while len(found) < len(sent):
            found += [record.value for record in consumer.poll(30)]
    assert found == sent
