"""Files that are written for a log to adopt."""

import pytest
from log.samples import SMALL, batch_of, open_log, transactional, whole

from sparklog.log.adoption import AppendAdoption, offer_path
from sparklog.log.offering import OfferWriter, renumber
from sparklog.record.records import iter_batches


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "t-0", SMALL)
    log.append_as_leader(batch_of(1000), 0)
    yield log
    log.close()


def test_what_is_written_is_adopted(log):
    writer = OfferWriter(log.directory, "mine", 250)
    for number in range(5):
        writer.append(bytearray(transactional(7, number * 3, 3)))
    offer = writer.finish()
    assert offer == ("mine", (0, 6, 12), 15)
    assert writer.nbytes == sum(path.stat().st_size for path in log.directory.glob("*.tmp"))
    adoption = AppendAdoption(log.directory, offer, log.config, 0)
    adoption.check()
    adoption.prepare(log.log_end_offset, 0)
    log.hold(adoption, lambda *_: None)
    adoption.commit()
    log.take_adopted(adoption)
    log.release()
    assert [each.base_offset for each in iter_batches(whole(log))] == [0, 1, 4, 7, 10, 13]


@pytest.mark.parametrize(("less", "bases"), [(0, (0, 2)), (1, (0, 1, 2))])
def test_a_file_is_filled_up_to_its_size(log, less, bases):
    batch = transactional(7, 0)
    writer = OfferWriter(log.directory, "mine", 2 * len(batch) - less)
    for _ in range(3):
        writer.append(bytearray(batch))
    assert (writer.next_offset, writer.finish()) == (3, ("mine", bases, 3))


def test_nothing_is_offered_where_nothing_was_written(log):
    writer = OfferWriter(log.directory, "mine", 250)
    assert writer.finish() is None
    assert not list(log.directory.glob("*.tmp"))


def test_what_is_given_up_is_removed(log):
    writer = OfferWriter(log.directory, "mine", 100)
    for number in range(3):
        writer.append(bytearray(transactional(7, number * 3, 3)))
    assert len(list(log.directory.glob("*.tmp"))) == 3
    writer.discard()
    assert not list(log.directory.glob("*.tmp"))


def test_another_attempt_with_the_same_tag(log):
    OfferWriter(log.directory, "mine", 250).append(bytearray(transactional(7, 0)))
    with pytest.raises(FileExistsError):
        OfferWriter(log.directory, "mine", 250).append(bytearray(transactional(7, 0)))


def test_a_file_is_filled_to_its_size_and_no_further(log):
    size = len(transactional(7, 0, 3))
    for name, room, bases in (("a", 2 * size, (0, 6)), ("b", 2 * size - 1, (0, 3, 6))):
        writer = OfferWriter(log.directory, name, room)
        for number in range(3):
            writer.append(bytearray(transactional(7, number * 3, 3)))
        assert (writer.nbytes, writer.next_offset) == (3 * size, 9)
        assert writer.finish() == (name, bases, 9)


def batches_in(log, offer):
    paths = [offer_path(log.directory, base, offer.tag) for base in offer.bases]
    return [batch for path in paths for batch in iter_batches(path.read_bytes())]


def test_sequences_that_are_known_later_are_written_later(log):
    writer, last = OfferWriter(log.directory, "mine", 250), (1 << 31) - 1
    for number, count in enumerate((3, 1, 2, 3)):
        writer.append(bytearray(transactional(7, number, count, epoch=5)))
    offer = writer.finish()
    assert len(offer.bases) == 2
    renumber(log.directory, offer, last - 3)
    batches = batches_in(log, offer)
    assert [batch.base_sequence for batch in batches] == [last - 3, last, 0, 2], "behind the last one comes 0"
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(7, 5)}
    assert [batch.base_offset for batch in batches] == [0, 3, 4, 6]
    for batch in batches:
        batch.validate()


def test_offers_without_a_leader_epoch_get_it_when_they_are_adopted(log):
    writer = OfferWriter(log.directory, "mine", 250)
    writer.append(bytearray(transactional(7, 0)))
    assert [batch.partition_leader_epoch for batch in batches_in(log, writer.finish())] == [-1]
