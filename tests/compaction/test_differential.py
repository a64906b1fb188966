"""Our cleaner beside Kafka's own, on copies of the same directories at the same clock: the same logs come out."""

import os
import shutil
from random import Random

import pytest
from compaction import ours
from compaction.dump import differences, dump, indexes
from compaction.logs import LogWriter

from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.record import layout
from sparklog.testing.kafka_cleaner import Uncleanable

pytestmark = pytest.mark.peer
SEEDS = [int(seed) for seed in os.environ.get("CLEANER_SEEDS", "").split()] or range(200)
"""``CLEANER_SEEDS="7 8"`` runs these alone."""
ROUNDS = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_both_leave_the_same_log(seed, tmp_path, kafka_cleaner):
    _clean_side_by_side(seed, LogWriter(seed), tmp_path, kafka_cleaner)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_they_do_by_turns_with_records_beyond_their_buffers_and_other_settings(seed, tmp_path, kafka_cleaner):
    """After every second round we go on with the log that Kafka left. Most batches are larger than what is read at
    once, and the large records are. The topic is deleted from too, and compresses its records, which is no concern of
    a cleaner.
    """
    draw = Random(seed)
    settings = {
        "cleanup.policy": draw.choice(("compact", "compact,delete")),
        "compression.type": draw.choice(("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")),
        "retention.ms": "-1",
        "max.compaction.lag.ms": draw.choice(("90000000", "108000000", str(2**63 - 1))),
    }
    writer = LogWriter(seed, settings)
    _clean_side_by_side(seed, writer, tmp_path, kafka_cleaner, read_bytes=256, by_turns=True)


def _clean_side_by_side(seed, writer, tmp_path, kafka_cleaner, read_bytes=1 << 16, *, by_turns=False):
    own = tmp_path / "ours" / "t-0"
    written = writer.write(own)
    first_dirty = None
    for number in range(ROUNDS):
        writer.pass_time(1000 * (1, 3600, 90_000, 60)[(seed + number) % 4])
        theirs = tmp_path / f"theirs-{number}" / "t-0"
        shutil.copytree(own, theirs)
        asked = {
            "config": written.settings,
            "now_ms": writer.now_ms,
            "first_dirty": first_dirty,
            "log_start_offset": min([written.log_start_offset, *_ends_of_aborted(own)]),
        }
        try:
            judged = kafka_cleaner.clean(theirs, **asked, io_buffer_bytes=read_bytes)
        except Uncleanable:  # its own defect, of small indexes: the docstring there
            assert int(written.settings["segment.index.bytes"]) < 10_000
            assert seed not in range(200), f"round {number} and those behind it are not compared"  # of these all are
            return
        first_dirty = _clean_likewise(own, theirs, asked, judged, read_bytes)
        if by_turns and number % 2 == 0:
            shutil.rmtree(own)
            shutil.copytree(theirs, own)
        written = writer.write(own, 30)


def _clean_likewise(own, theirs, asked, judged, read_bytes):
    """Clean ``own`` as Kafka has cleaned ``theirs``: where that ended."""
    assert ours.delay_of(own, **asked) == judged.delay_ms
    sections, stats = ours.clean(own, **asked, read_bytes=read_bytes)
    assert (sections.first_dirty, sections.first_uncleanable) == (judged.first_dirty, judged.first_uncleanable)
    assert (sections.clean_bytes, sections.cleanable_bytes) == (judged.clean_bytes, judged.cleanable_bytes)
    assert sections.is_checkpoint_wrong == judged.was_reset
    facts = [_behind_the_start(dump(each), asked["log_start_offset"]) for each in (own, theirs)]
    assert differences(*facts) == []
    if not any(batch.attributes & layout.COMPRESSION_MASK for batch in dump(own).batches):
        assert indexes(own) == indexes(theirs)  # codecs may write the same records in other sizes
    assert stats.end_offset == judged.end_offset
    if sections.cleanable_bytes:
        counted = judged.stats
        assert stats.messages_written == counted.messages_written
        assert stats.invalid_messages == counted.invalid_messages_read
    return stats.end_offset


def _ends_of_aborted(directory):
    """What was aborted before the start of the log Kafka's cleaner takes for committed (3.9, ``UnifiedLog``,
    ``collectAbortedTransactions``). Ours does not: a crash may take that start back.
    """
    return [each.last_offset for path in directory.glob("*.txnindex") for each in read_aborted(path)]


def _behind_the_start(facts, log_start_offset):
    """Kafka removes the snapshots up to the start of the log when it opens it."""
    return facts._replace(snapshots=tuple(each for each in facts.snapshots if each > log_start_offset))


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_a_map_that_is_too_small_makes_several_passes_of_one(seed, tmp_path, kafka_cleaner):
    """Each ends where the map is full, and the next goes on there. There are no transactions: behind such an end Kafka
    takes some that were committed for aborted ones, and keeps old values for one more pass.
    """
    writer = LogWriter(seed, {"delete.retention.ms": "0"}, without=("transaction", "lone marker"))
    own = tmp_path / "ours" / "t-0"
    written = writer.write(own)
    first_dirty = None
    for number in range(ROUNDS):
        theirs = tmp_path / f"theirs-{number}" / "t-0"
        shutil.copytree(own, theirs)
        asked = {
            "config": written.settings,
            "now_ms": writer.now_ms,
            "first_dirty": first_dirty,
            "log_start_offset": written.log_start_offset,
            "buffer_bytes": 24 * 40,
        }
        judged = kafka_cleaner.clean(theirs, **asked)
        sections, stats = ours.clean(own, **asked)
        assert (sections.first_dirty, sections.first_uncleanable) == (judged.first_dirty, judged.first_uncleanable)
        assert stats.end_offset == judged.end_offset
        facts = [_behind_the_start(dump(each), written.log_start_offset) for each in (own, theirs)]
        assert differences(*facts) == []
        first_dirty = stats.end_offset
