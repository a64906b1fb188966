"""The logs that cleaners are compared on: the same for a seed, and full of what makes a difference."""

from itertools import pairwise

import pytest
from compaction.dump import differences, dump
from compaction.logs import LogWriter

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.record.layout import COMPRESSION_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT


def written(directory, seed, rounds=2):
    writer = LogWriter(seed)
    return [writer.write(directory / "t-0", steps=60) for _ in range(rounds)][-1]


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_always_writes_the_same(tmp_path, seed):
    first, second = written(tmp_path / "1", seed), written(tmp_path / "2", seed)
    assert first.settings == second.settings
    names = [sorted(path.name for path in each.directory.iterdir()) for each in (first, second)]
    assert names[0] == names[1]
    assert [(first.directory / name).read_bytes() for name in names[0]] == [
        (second.directory / name).read_bytes() for name in names[1]
    ]
    assert dump(first.directory) == dump(second.directory)


def test_seeds_differ(tmp_path):
    assert differences(*(dump(written(tmp_path / str(seed), seed).directory) for seed in range(2)))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    home = tmp_path_factory.mktemp("logs")
    return [written(home / str(seed), seed) for seed in range(30)]


def test_settings_are_those_of_topics(many):
    for each in many:
        parse(TopicConfig, each.settings)


def test_there_is_some_of_everything(many):
    facts = [dump(each.directory) for each in many]
    batches = [batch for each in facts for batch in each.batches]
    data = [batch for batch in batches if not batch.attributes & CONTROL_BIT]
    records = [record for batch in data for record in batch.records]
    assert {batch.attributes & COMPRESSION_MASK for batch in data} == set(range(5))
    assert {batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) for batch in batches} == {0, 0x10, 0x30}
    assert {bool(batch.attributes & LOG_APPEND_TIME_BIT) for batch in data} == {False, True}
    assert any(each.aborted for each in facts)
    assert len({batch.leader_epoch for batch in batches}) > 5
    assert len({batch.producer_epoch for batch in batches}) > 3
    assert {1, 6} <= {batch.record_count for batch in data}
    assert {record.key for record in records} >= {None, b"", b"hot-0", b"cold-1", b"once-1"}
    assert any(record.key == b"" and record.value is None for record in records)
    assert any(record.value == b"" for record in records)
    assert any(len(record.headers) > 1 for record in records)
    assert any(len(record.value or b"") > 1000 for record in records)
    assert any(record.timestamp == -1 for record in records)
    assert any(one.timestamp > other.timestamp for one, other in pairwise(records))
    assert any(each.log_start_offset for each in many)
    assert all(len(each.segments) > 1 for each in facts)
