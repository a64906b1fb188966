"""The index of the decisions against a model: whatever is written, forgotten or set back, the last record is found."""

import random
from contextlib import suppress

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, CorruptRecord
from sparklog.record.builder import RecordBatchBuilder
from sparklog.spark.write import decision_index
from sparklog.spark.write.decision_index import GROUP, KEY, DecisionIndex
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(metadata):
    with Admin(metadata.config) as admin:
        yield admin


@pytest.fixture
def tp(make_topic):
    return TopicPartition(make_topic(), 0)


@pytest.fixture
def put(metadata, tp):
    """Writes a record; its offset."""

    def write(key, value):
        builder = RecordBatchBuilder()
        builder.append(0, key, value)
        with BatchProducer(metadata) as producer:
            producer.send(tp, bytearray(builder.build()))
        return latest_offsets(metadata, [tp])[tp] - 1

    return write


@pytest.mark.parametrize("seed", range(3))
def test_the_last_record_of_a_key_is_found(metadata, admin, tp, put, monkeypatch, seed):
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)
    live(metadata, admin, tp, put, seed)


@pytest.mark.parametrize("servers", ["sparklog"], indirect=True)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_it_is_found_where_the_partition_is_cleaned_again_and_again(metadata, admin, tp, put, monkeypatch, seed):
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)
    admin.alter_topic_configs(tp.topic, {"cleanup.policy": "compact"})
    gone = []

    def clean():
        ((_, outcome),) = admin.compact([tp]).items()
        assert outcome.error is None
        gone.append(0 if outcome.run is None else outcome.run.messages_before - outcome.run.messages_after)

    live(metadata, admin, tp, put, seed, more=[clean])
    assert sum(each > 0 for each in gone) > 1


def live(metadata, admin, tp, put, seed, more=()):
    """Write, and look up what was written, while who knows what becomes of the group and of the records."""
    chance, model, ends = random.Random(seed), {}, [0]
    index = DecisionIndex(metadata, admin, tp)

    def write():
        key = b"key %d" % chance.randrange(12)
        model[key] = None if chance.random() < 0.2 else b"%d" % chance.randrange(1000)
        index.write_if_due(put(key, model[key]))

    def set_back():
        """The group of an index that came too late goes back; or to where no index ever ended."""
        admin.alter_group_offsets(GROUP, {tp: chance.choice([*ends, chance.randrange(50)])})

    def forget():
        with suppress(ApiError):
            admin.delete_groups([GROUP])

    def spoil():
        put(KEY, chance.choice([b"nonsense", b'{"version": 99}', b"{}", b"7", None]))

    for _ in range(150):
        chance.choice([write] * 20 + [set_back, forget, spoil, *more])()
        if chance.random() < 0.3:
            key = chance.choice([*model, b"never written"])
            assert index.last_value(key) == model.get(key)
            committed = admin.group_offsets(GROUP, [tp]).get(tp)
            ends += [] if committed is None else [committed.offset]


def test_a_record_that_only_the_index_remembers_is_an_error(metadata, admin, tp, put, monkeypatch):
    """A retention has removed it, or somebody has: that is not to be taken for a key that never was."""
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 4)
    index = DecisionIndex(metadata, admin, tp)
    put(b"first", b"1")
    for number in range(8):
        put(b"other", b"%d" % number)
    assert index.last_value(b"first") == b"1"  # and an index is written
    admin.delete_records({tp: 3})
    with pytest.raises((CorruptRecord, ApiError), match=r"OFFSET_OUT_OF_RANGE|no record"):
        index.last_value(b"first")
    assert index.last_value(b"other") == b"7"


def test_an_index_that_the_topic_does_not_take_is_done_without(metadata, admin, make_topic, monkeypatch):
    """There are more scopes than the largest record has room for."""
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)
    tp = TopicPartition(make_topic(suffix="-small", max_message_bytes=200), 0)
    with BatchProducer(metadata) as producer:
        for number in range(40):
            builder = RecordBatchBuilder()
            builder.append(0, random.Random(number).randbytes(16).hex().encode(), b"%d" % number)
            producer.send(tp, bytearray(builder.build()))
    key = random.Random(7).randbytes(16).hex().encode()
    assert DecisionIndex(metadata, admin, tp).last_value(key) == b"7"
    assert not admin.group_offsets(GROUP, [tp])


@pytest.mark.parametrize("servers", ["sparklog"], indirect=True)
def test_a_key_whose_deletion_was_cleaned_away_is_not_taken_for_one_that_never_was(
    metadata, admin, tp, put, monkeypatch
):
    """Its last record is in the index, which is older than the deletion."""
    monkeypatch.setattr(decision_index, "INDEX_INTERVAL", 16)
    admin.alter_topic_configs(tp.topic, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    index = DecisionIndex(metadata, admin, tp)
    put(b"key", b"1")
    for number in range(20):
        put(b"other", b"%d" % number)
    assert index.last_value(b"key") == b"1"  # and an index is written
    put(b"key", None)
    for number in range(3):
        admin.compact([tp])
        put(b"other", b"%d" % number)
    assert index.last_value(b"other") == b"2"
    with pytest.raises(CorruptRecord, match="no record"):
        index.last_value(b"key")
