"""Which of several directories is a partition's."""

from uuid import UUID

import pytest

from sparklog.errors import ConfigError
from sparklog.log.checkpoints import write_topic_id
from sparklog.log.directories.homes import Held, Holding, home_of, in_doubt, look_into, strays_of
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition

OURS, THEIRS = UUID(int=7), UUID(int=8)
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LOG, INDEX, ID, EPOCHS = f"{0:020d}.log", f"{0:020d}.index", "partition.metadata", "leader-epoch-checkpoint"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], Holding.NOTHING),
        ([LOG, INDEX, EPOCHS, f"{ID}.3.tmp"], Holding.NOTHING),
        ([ID], Holding.NOTHING),
        ([LOG, ID], Holding.ID),
        ([LOG, INDEX, EPOCHS, ID], Holding.ID),
        ([LOG, ID, f"{5:020d}.log"], Holding.RECORDS),
        ([f"{5:020d}.log"], Holding.RECORDS),
        ([LOG, f"{0:020d}.snapshot"], Holding.RECORDS),
        ([f"{LOG}.corrupt"], Holding.RECORDS),
        ([f"{LOG}.swap"], Holding.RECORDS),
        (["somebody's"], Holding.RECORDS),
    ],
)
def test_what_no_making_of_a_partition_leaves_counts_as_records(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).touch()
    if ID in files:
        write_topic_id(tmp_path, OURS)
    assert look_into(tmp_path, Knowledge()).holding is expected


def test_a_byte_in_the_log_counts_as_records(tmp_path):
    (tmp_path / LOG).write_bytes(b"?")
    assert look_into(tmp_path, Knowledge()) == Held(Holding.RECORDS)


@pytest.mark.parametrize("known", [Knowledge(recovery_point=1), Knowledge(log_start_offset=1)])
def test_what_a_checkpoint_says_counts_as_records(tmp_path, known):
    assert look_into(tmp_path, known) == Held(Holding.RECORDS)


def test_what_stands_in_the_place_of_a_file_counts_as_records(tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / INDEX).mkdir()
    (tmp_path / "t-1").touch()
    assert look_into(tmp_path / "t-0", Knowledge()) == Held(Holding.RECORDS)
    assert look_into(tmp_path / "t-1", Knowledge()) == Held(Holding.RECORDS)


def test_a_disk_that_cannot_say_is_no_answer(tmp_path):
    with pytest.raises(FileNotFoundError):
        look_into(tmp_path / "gone", Knowledge())


def test_a_topic_id_that_cannot_be_read_is_for_a_person(tmp_path):
    (tmp_path / ID).write_text("garbage")
    assert look_into(tmp_path, Knowledge()) == Held(Holding.RECORDS)


def test_a_stray_is_what_the_cluster_says_of_several_that_bear_an_id(tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    held = {a: Held(Holding.RECORDS, THEIRS), b: Held(Holding.ID, OURS), c: Held(Holding.RECORDS)}

    def why_stray(tp, topic_id):
        assert (tp, topic_id) in ((ONE, OURS), (ONE, THEIRS)), "who bears no id is not asked about"
        return "it is theirs" if topic_id == THEIRS else None

    assert strays_of(ONE, held, why_stray) == {a: "it is theirs"}
    assert strays_of(ONE, {a: held[a]}, why_stray) == {}


def test_in_doubt_are_those_in_two_directories_and_all_where_one_is_out_of_service():
    assert in_doubt([{ONE, TWO}, {TWO}], is_complete=True) == {TWO}
    assert in_doubt([{ONE}, {TWO}], is_complete=True) == set()
    assert in_doubt([{ONE}, {TWO}], is_complete=False) == {ONE, TWO}


@pytest.mark.parametrize(
    ("a", "b", "expected", "without_all"),
    [
        (Holding.RECORDS, Holding.ID, "a", "a"),
        (Holding.ID, Holding.RECORDS, "b", "b"),
        (Holding.NOTHING, Holding.ID, "b", "b"),
        (Holding.ID, Holding.ID, "a", "a"),
        (Holding.NOTHING, Holding.NOTHING, "a", None),
    ],
)
def test_the_directory_that_holds_most_is_the_home(tmp_path, a, b, expected, without_all):
    held = {tmp_path / "a": Held(a), tmp_path / "b": Held(b)}
    assert home_of(ONE, held, is_complete=True) == tmp_path / expected
    assert home_of(ONE, held, is_complete=False) == (without_all and tmp_path / without_all)


@pytest.mark.parametrize("is_complete", [False, True])
def test_of_two_logs_a_person_chooses(tmp_path, is_complete):
    held = dict.fromkeys([tmp_path / "a", tmp_path / "b"], Held(Holding.RECORDS))
    with pytest.raises(ConfigError, match=f"t-0 is both in {tmp_path}/a and in {tmp_path}/b: move one away"):
        home_of(ONE, held, is_complete=is_complete)
