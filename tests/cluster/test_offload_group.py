"""What a commit says of an offload, written and read."""

from uuid import UUID

import pytest

from sparklog.cluster.offload_group import OffloadNote, group_of

ID = UUID(int=7)


def test_a_group_is_named_after_its_topic_unless_it_is_set():
    assert (group_of("clicks", ""), group_of("clicks", "mine")) == ("sparklog-offload.clicks", "mine")


@pytest.mark.parametrize("place", ["table /data/a b", "", "x" * 5000])
def test_a_note_is_read_as_it_was_written(place):
    note = OffloadNote.from_metadata(OffloadNote(ID, place).to_metadata())
    assert note is not None
    assert note.topic_id == ID
    assert note.is_of(place)
    assert not note.is_of("another")
    assert len(note.to_metadata()) < 4096


def test_long_places_that_differ_at_their_ends_are_two():
    note = OffloadNote.from_metadata(OffloadNote(ID, "x" * 600 + "a").to_metadata())
    assert note is not None
    assert note.is_of("x" * 600 + "a")
    assert not note.is_of("x" * 600 + "b")


@pytest.mark.parametrize("text", ["", "sparklog-offload", "sparklog-offload x y", f"other {ID} place", str(ID)])
def test_the_metadata_of_others_is_no_note(text):
    assert OffloadNote.from_metadata(text) is None
