"""Names of files, and of what is none."""

import pytest

from sparklog.errors import LogError
from sparklog.log.files import base_offset_of, is_topic_name, parse_partition_dir, segment_path
from sparklog.structs import TopicPartition


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_a_segment_is_named_by_its_first_offset(tmp_path, offset):
    path = segment_path(tmp_path, offset, ".log")
    assert len(path.name) == 24
    assert base_offset_of(path) == offset


@pytest.mark.parametrize("name", ["0.log", "00000000000000000000x.log", "-0000000000000000001.log", ".log", "²" * 20])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(LogError, match="20 digits"):
        base_offset_of(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        ("t-0", ("t", 0)),
        ("a-b-12", ("a-b", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("t", None),
        ("t-", None),
        ("-0", None),
        ("t-x", None),
        ("t-0.0123-delete", None),
        ("..-0", None),
        ("t ö-0", None),
        ("t-²", None),
    ],
)
def test_a_directory_is_a_partition_or_is_not(name, tp):
    assert parse_partition_dir(name) == (TopicPartition(*tp) if tp else None)


def test_topic_names():
    for name in ("a", "A.b_c-9", "x" * 249, "...", "-"):
        assert is_topic_name(name), name
    for name in ("", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "a\n", "١"):
        assert not is_topic_name(name), name
