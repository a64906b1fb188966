"""``delivery=at-least-once``: what one run of a task writes while answers are lost."""

import pyarrow as pa
import pytest
from integration.proxy import Proxy

from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.protocol.api_key import ApiKey
from sparklog.record.layout import NO_PRODUCER_ID
from sparklog.record.records import iter_records
from sparklog.spark.write.attempt import write_at_least_once
from sparklog.spark.write.options import WriteOptions
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration

ROWS = 600


def _rows():
    for start in range(0, ROWS, 20):
        values = [b"%d" % number for number in range(start, start + 20)]
        yield pa.record_batch({"key": [b"k"] * 20, "value": values})


def _write(proxy, topic, **settings):
    options = {"bootstrap.servers": proxy.address, "batch.size": "500", "retry.backoff.ms": "1", **settings}
    kafka = {f"kafka.{name}": text for name, text in options.items()}
    return write_at_least_once(WriteOptions.for_batch({"topic": topic, "delivery": "at-least-once", **kafka}), _rows())


@pytest.fixture
def proxy(servers):
    with Proxy(int(servers.rpartition(":")[2])) as found:
        yield found


@pytest.fixture
def batches(metadata):
    def read(topic):
        tp = TopicPartition(topic, 0)
        return list(fetch_range(metadata, tp, 0, latest_offsets(metadata, [tp])[tp]))

    return read


@pytest.fixture
def values(batches):
    def read(topic):
        return [int(each.value) for batch in batches(topic) for each in iter_records(batch)]

    return read


def test_each_row_is_written_once_and_in_order(proxy, make_topic, values):
    topic = make_topic()
    proxy.lose_answers(ApiKey.PRODUCE, every=6)
    assert _write(proxy, topic) == ROWS
    assert proxy.lost >= 5
    assert values(topic) == list(range(ROWS))


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "not-idempotent"])
def test_batches_have_numbers_unless_these_are_declined(proxy, make_topic, batches, is_idempotent):
    topic = make_topic()
    assert _write(proxy, topic, **{"enable.idempotence": str(is_idempotent)}) == ROWS
    assert {each.producer_id != NO_PRODUCER_ID for each in batches(topic)} == {is_idempotent}


def test_an_answer_without_an_id_is_waited_for(proxy, make_topic, values):
    topic = make_topic()
    proxy.lose_answers(ApiKey.INIT_PRODUCER_ID, every=1, at_most=2)
    assert _write(proxy, topic) == ROWS
    assert proxy.lost == 2
    assert values(topic) == list(range(ROWS))


@pytest.mark.parametrize(
    "settings", [{"acks": "1"}, {"acks": "0"}, {"max.in.flight.requests.per.connection": "6"}], ids=str
)
def test_settings_that_promise_less_are_obeyed(proxy, make_topic, values, settings):
    topic = make_topic()
    proxy.lose_answers(ApiKey.INIT_PRODUCER_ID, every=1)
    assert _write(proxy, topic, **settings) == ROWS
    assert proxy.lost == 0
    if settings.get("acks") != "0":
        assert values(topic) == list(range(ROWS))
