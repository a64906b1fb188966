"""The small text files: as Kafka writes them, whole or not at all, and nothing else is taken for one."""

from uuid import UUID

import pytest

from sparklog.errors import CorruptRecord
from sparklog.log.checkpoints import (
    read_checkpoint,
    read_meta_properties,
    read_offsets,
    read_topic_id,
    whole_number,
    write_checkpoint,
    write_meta_properties,
    write_offsets,
    write_topic_id,
)
from sparklog.structs import TopicPartition

OFFSETS = {TopicPartition("b", 10): 5, TopicPartition("a-b", 2): 1 << 40, TopicPartition("b", 9): 0}


def test_offsets_are_written_as_kafka_writes_them_and_read_back(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offsets(path, OFFSETS)
    assert path.read_text() == "0\n3\na-b 2 1099511627776\nb 9 0\nb 10 5\n"
    assert read_offsets(path) == OFFSETS
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_no_file_is_no_entries(tmp_path):
    assert read_offsets(tmp_path / "none") == {}
    assert read_topic_id(tmp_path) is None
    assert read_meta_properties(tmp_path) == {}


def test_kafka_makes_the_cleaners_checkpoint_empty(tmp_path):
    path = tmp_path / "cleaner-offset-checkpoint"
    path.touch()
    assert read_offsets(path) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\nt 0 5\n",
        b"0\n0\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt  0 5\n",
        b"0\n1\nt zero 5\n",
        b"0\n1\nt 0 five\n",
        b"zero\n0\n",
        b"\xff\xfe\x00garbage",
        b"0\n1\nt 0 5",
    ],
)
def test_garbage_is_refused_by_the_name_of_its_file(tmp_path, content):
    path = tmp_path / "some-checkpoint"
    path.write_bytes(content)
    if content.endswith(b"t 0 5"):  # a lost last newline loses nothing
        assert read_offsets(path) == {TopicPartition("t", 0): 5}
        return
    with pytest.raises(CorruptRecord, match="some-checkpoint"):
        read_offsets(path)


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    write_checkpoint(path, [(1, 2)])

    def fail(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(path, [(3, 4)])
    assert read_checkpoint(path, 2) == [["1", "2"]]


def test_a_topic_id_is_kept_as_kafka_keeps_it(tmp_path):
    identity = UUID("0192cb5a-5a1e-7a5b-8c3d-1f2e3d4c5b6a")
    write_topic_id(tmp_path, identity)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: AZLLWloeeluMPR8uPUxbag"
    assert read_topic_id(tmp_path) == identity


@pytest.mark.parametrize("content", ["", "version: 0\n", "version: 0\ntopic_id: short", "topic_id: !!!", "garbage"])
def test_a_topic_id_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "partition.metadata").write_text(content)
    with pytest.raises(CorruptRecord, match=r"partition\.metadata"):
        read_topic_id(tmp_path)


def test_the_owner_of_a_directory(tmp_path):
    write_meta_properties(tmp_path, "cluster-X=", 7)
    assert read_meta_properties(tmp_path) == {"broker.id": "7", "version": "0", "cluster.id": "cluster-X="}
    (tmp_path / "meta.properties").write_text("#Mon Jan 01\n\nbroker.id = 1\nother\n")
    assert read_meta_properties(tmp_path)["broker.id"] == "1"


@pytest.mark.parametrize(
    ("text", "most", "number"), [("0", 5, 0), ("5", 5, 5), ("9223372036854775807", None, 2**63 - 1), ("007", 100, 7)]
)
def test_numbers_of_a_field(text, most, number):
    assert (whole_number(text) if most is None else whole_number(text, most)) == number


@pytest.mark.parametrize(
    ("text", "most"),
    [("6", 5), ("05", 5), ("", 5), ("-1", 5), ("+1", 50), (" 1", 50), ("\u0665", 5), ("²", 5), (str(2**63), 2**63 - 1)],
)
def test_what_is_no_number_of_a_field(text, most):
    with pytest.raises(ValueError):
        whole_number(text, most)


@pytest.mark.parametrize(("line", "is_one"), [("t 2147483647 5", True), ("t 2147483648 5", False)])
def test_a_partition_is_a_number_of_32_bits(tmp_path, line, is_one):
    path = tmp_path / "some-checkpoint"
    path.write_text(f"0\n1\n{line}\n")
    if is_one:
        assert read_offsets(path) == {TopicPartition("t", 2**31 - 1): 5}
    else:
        with pytest.raises(CorruptRecord, match="some-checkpoint"):
            read_offsets(path)


def test_a_line_may_bear_what_a_partition_metadata_of_another_version_adds(tmp_path):
    identity = UUID("0192cb5a-5a1e-7a5b-8c3d-1f2e3d4c5b6a")
    (tmp_path / "partition.metadata").write_text("version: 0\nother: a: b\ntopic_id: AZLLWloeeluMPR8uPUxbag\nrest")
    assert read_topic_id(tmp_path) == identity


def test_the_properties_of_a_directory_are_as_kafka_writes_them(tmp_path):
    write_meta_properties(tmp_path, "c", 3)
    assert (tmp_path / "meta.properties").read_text() == "#\nbroker.id=3\nversion=0\ncluster.id=c\n"
    (tmp_path / "meta.properties").write_bytes(b"broker.id=\xff")
    with pytest.raises(CorruptRecord, match=r"meta\.properties"):
        read_meta_properties(tmp_path)
    (tmp_path / "partition.metadata").write_bytes(b"topic_id: \xff")
    with pytest.raises(CorruptRecord, match=r"partition\.metadata"):
        read_topic_id(tmp_path)
