"""Files that are written for a log to adopt."""

import pytest
from log.samples import SMALL, batch_of, open_log, transactional, whole

from sparklog.log.adoption import AppendAdoption
from sparklog.log.offering import OfferWriter
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
