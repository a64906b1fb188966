"""What is known of partitions that cannot be served."""

from pathlib import Path

from sparklog.errors import DiskFull, LogError
from sparklog.log.directories.unusable import UnusablePartitions
from sparklog.structs import TopicPartition

ONE, TWO, A, B = TopicPartition("t", 1), TopicPartition("t", 2), Path("/a"), Path("/b")


def test_what_a_full_disk_refused_is_worth_another_try_until_another_error_comes():
    unusable = UnusablePartitions()
    unusable.refuse(ONE, A / "t-1", DiskFull("full"))
    unusable.refuse(TWO, A / "t-2", LogError("broken"))
    assert [unusable.waits_for_room(each) for each in (ONE, TWO)] == [True, False]
    unusable.refuse_again(ONE, DiskFull("full still"))
    assert unusable.waits_for_room(ONE)
    unusable.refuse_again(ONE, LogError("broken too"))
    assert not unusable.waits_for_room(ONE)
    assert unusable == {ONE: "broken too", TWO: "broken"}
    assert unusable.places == {ONE: A / "t-1", TWO: A / "t-2"}


def test_what_is_in_a_directory_that_is_lost_has_no_place_any_more():
    unusable = UnusablePartitions()
    unusable.refuse(ONE, A / "t-1", DiskFull("full"))
    unusable.refuse(TWO, B / "t-2", DiskFull("full"))
    unusable.lose(A, "it has burnt")
    assert unusable == {ONE: "it has burnt", TWO: "full"}
    assert [unusable.is_out_of_service(each) for each in (ONE, TWO)] == [True, False]
    assert [unusable.waits_for_room(each) for each in (ONE, TWO)] == [False, True]


def test_nothing_is_known_of_one_that_is_forgotten():
    unusable = UnusablePartitions()
    unusable.refuse(ONE, A / "t-1", DiskFull("full"))
    unusable.forget(ONE)
    unusable.forget(TWO)
    assert (unusable, unusable.places, unusable.waits_for_room(ONE)) == ({}, {}, False)
    assert not unusable.is_out_of_service(ONE)
