"""The formats of ``__transaction_state``, beside records that Kafka 3.9.1 wrote."""

import logging

import pytest
from golden.log_dirs import HERE

from sparklog.errors import CorruptRecord
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.txn.records import TransactionLoader, build_batch, key_of, read_key, read_value, value_of
from sparklog.txn.state import (
    LAST_EPOCH,
    NO_TIMEOUT_MS,
    ClientVersion,
    Producer,
    Transaction,
    TransactionState,
)

S = TransactionState
FULL = Transaction(
    "payments-é",
    1 << 40,
    7,
    60_000,
    S.ONGOING,
    frozenset({TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("a", 0)}),
    start_ms=1_700_000_000_000,
    update_ms=1_700_000_000_005,
)
GOLDEN = HERE / "kafka-3.9-stopped" / "__transaction_state-0" / f"{0:020d}.log"


def kafkas():
    return [record for batch in iter_batches(GOLDEN.read_bytes()) for record in iter_records(batch)]


def test_kafkas_records_are_read_and_written_byte_for_byte():
    records = kafkas()
    assert len(records) > 40
    states = set()
    for record in records:
        transactional_id = read_key(record.key)
        transaction = read_value(transactional_id, record.value)
        states.add(transaction.state)
        assert key_of(transactional_id) == record.key
        assert value_of(transaction) == record.value
        assert transaction.update_ms <= record.timestamp
    assert states == set(S) - {S.DEAD}


def loaded(*batches):
    loader = TransactionLoader("__transaction_state-3")
    for each in batches:
        loader.add(memoryview(each))
    for _ in loader.parse():
        pass
    return loader.transactions


def test_kafkas_log_loads_into_the_last_state_of_each_id():
    found = loaded(GOLDEN.read_bytes())
    last = {read_key(record.key): record.value for record in kafkas()}
    assert {id_: value_of(each) for id_, each in found.items()} == last
    assert S.ONGOING in {each.state for each in found.values()}


@pytest.mark.parametrize("state", [each for each in S if each is not S.DEAD])
def test_every_state_survives_a_round_trip(state):
    partitions = frozenset() if state is S.EMPTY else FULL.partitions
    transaction = FULL._replace(state=state, partitions=partitions)
    assert read_value(transaction.transactional_id, value_of(transaction)) == transaction


SECOND = FULL._replace(client_version=ClientVersion.EPOCH_A_TRANSACTION)


@pytest.mark.parametrize(
    "transaction",
    [
        SECOND,
        SECOND._replace(last_producer_id=1 << 40, last_epoch=6, state=S.PREPARE_COMMIT),
        SECOND._replace(last_producer_id=5, last_epoch=LAST_EPOCH - 1, epoch=0, state=S.COMPLETE_ABORT),
        SECOND._replace(last_producer_id=5, last_epoch=0, epoch=1, state=S.COMPLETE_ABORT),
        SECOND.told(Producer(1 << 40, 8)),
        SECOND.told(Producer(1 << 41, 0))._replace(
            last_producer_id=1 << 40, last_epoch=LAST_EPOCH - 1, state=S.PREPARE_ABORT
        ),
        FULL.told(Producer(1 << 41, 9))._replace(timeout_ms=NO_TIMEOUT_MS),
    ],
)
def test_what_the_second_version_needs_survives_a_round_trip(transaction):
    assert value_of(transaction)[:2] == b"\x00\x01"
    assert read_value(transaction.transactional_id, value_of(transaction)) == transaction


def test_a_tag_that_is_not_known_is_passed_over():
    value = bytearray(value_of(SECOND))
    assert value[-5:] == b"\x01\x02\x02\x00\x02"
    value[-5:] = b"\x02\x02\x02\x00\x02\x63\x01\x07"
    assert read_value(FULL.transactional_id, bytes(value)) == SECOND


def test_a_next_producer_without_its_epoch_begins_with_the_first():
    value = bytearray(value_of(SECOND.told(Producer(1 << 40, 8))))
    assert (value[-19], bytes(value[-4:])) == (3, b"\x03\x02\x00\x08")
    value[-19] = 2
    assert read_value(FULL.transactional_id, bytes(value[:-4])) == SECOND.told(Producer(1 << 40, 0))


def test_a_key_of_another_version_names_nobody():
    assert read_key(key_of("x")) == "x"
    assert read_key(b"\x00\x01" + key_of("x")[2:]) is None
    with pytest.raises(CorruptRecord):
        read_key(b"\x00")


def test_the_flexible_version_is_read():
    flexible = (
        (1).to_bytes(2, "big") + (9).to_bytes(8, "big") + (2).to_bytes(2, "big") + (1000).to_bytes(4, "big")
        + b"\x01" + b"\x02" + b"\x02t" + b"\x03" + (0).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"\x00"
        + (50).to_bytes(8, "big") + (40).to_bytes(8, "big") + b"\x01\x02\x02\x00\x00"
    )  # fmt: skip
    partitions = frozenset({TopicPartition("t", 0), TopicPartition("t", 4)})
    assert read_value("x", flexible) == Transaction("x", 9, 2, 1000, S.ONGOING, partitions, start_ms=40, update_ms=50)


def test_a_dead_id_is_a_tombstone_and_loads_as_nothing():
    dead = FULL._replace(state=S.DEAD)
    assert value_of(dead) is None
    assert loaded(build_batch(FULL, 1), build_batch(dead, 2)) == {}


@pytest.mark.parametrize("cut", range(len(value_of(FULL) or b"")))
def test_a_value_cut_short_is_corrupt(cut):
    with pytest.raises(CorruptRecord, match="someones"):
        read_value("someones", value_of(FULL)[:cut])


@pytest.mark.parametrize(("at", "byte"), [(1, 9), (16, 77)], ids=["version", "state"])
def test_a_value_of_an_unknown_kind_is_corrupt(at, byte):
    value = bytearray(value_of(FULL))
    value[at] = byte
    with pytest.raises(CorruptRecord):
        read_value("x", bytes(value))


@pytest.mark.parametrize(("count", "pauses"), [(199, 0), (200, 1), (399, 1), (400, 2)])
def test_many_records_are_parsed_with_pauses(count, pauses):
    loader = TransactionLoader("__transaction_state-3")
    for number in range(count):
        loader.add(memoryview(build_batch(FULL._replace(transactional_id=str(number)), 1)))
    assert len([*loader.parse()]) == pauses
    assert len(loader.transactions) == count


def test_a_record_that_cannot_be_read_costs_only_itself(caplog):
    damaged = FULL._replace(transactional_id="damaged")
    raw = bytearray(build_batch(damaged, 1))
    raw[raw.index(value_of(damaged)) + 1] = 9
    with caplog.at_level(logging.ERROR):
        assert loaded(raw, build_batch(FULL, 1)) == {FULL.transactional_id: FULL}
    assert "__transaction_state-3: what lies at offset 0 cannot be read" in caplog.text
    assert "damaged" in caplog.text


def test_a_batch_that_cannot_be_read_costs_only_itself(caplog):
    raw = bytearray(build_batch(FULL._replace(epoch=1), 1))
    raw[61] = 0x7E
    with caplog.at_level(logging.ERROR):
        assert loaded(raw, build_batch(FULL, 1)) == {FULL.transactional_id: FULL}
    assert "__transaction_state-3: what lies at offset 0 cannot be read" in caplog.text
