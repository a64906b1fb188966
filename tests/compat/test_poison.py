"""What Kafka 3.9.1 answers to batches whose records cannot be read, which is what ours is measured by."""

import pytest
from integration import poison, wire

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TP = TopicPartition("t", 0)
REFUSALS = {ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR}


def test_kafka_refuses_what_we_refuse_but_for_five(tmp_path, chroot):
    with KafkaBroker(tmp_path / "kafka", chroot) as kafka, wire.connect(kafka.bootstrap_servers) as connection:
        assert wire.create_topic(connection, TP.topic, 1, {"retention.ms": "-1"})[0] is ErrorCode.NONE
        good = poison.batch(poison.records(1))
        eventually(lambda: wire.produce(connection, TP, good)[0] is ErrorCode.NONE, 60, "Kafka to lead the partition")
        answers = {each.name: wire.produce(connection, TP, each.data)[0] for each in poison.poisons()}
    accepted = {name for name, code in answers.items() if code is ErrorCode.NONE}
    assert accepted == poison.ACCEPTED_BY_KAFKA
    assert {code for name, code in answers.items() if name not in accepted} == REFUSALS
