"""What is known of producers when the disk refuses: batches taken back, a state that cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.samples import marker_of, transactional

from sparklog.log import producer_state
from sparklog.log.producer_state import ProducerStateManager
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.control import ControlType, EndTransactionMarker
from sparklog.testing.files import FaultyFiles


def placed(data: memoryview, offset: int) -> RecordBatch:
    """The batch as the log holds it."""
    patch_header(data, 0, offset, 0)
    return RecordBatch(data)


@pytest.mark.parametrize(
    ("step", "error"), [("scandir", errno.EMFILE), ("scandir", errno.EACCES), ("openread", errno.EMFILE)]
)
def test_a_state_that_cannot_be_read_leaves_the_one_that_is_known(tmp_path: Path, step: str, error: int) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(transactional(1, 0), 0), 1000)
    producers.take_snapshot(1000, durable=False)
    producers.update(placed(transactional(2, 0), 1), 1000)
    with FaultyFiles(tmp_path, fail_at=0, error=error, steps=[step]), pytest.raises(OSError, match="step 0"):
        producers.load(0, 2)
    assert (len(producers), producers.end_offset, producers.first_unstable_offset) == (2, 2, 0)
    producers.load(0, 2)
    assert (len(producers), producers.end_offset, producers.first_unstable_offset) == (1, 1, 0)


def test_no_transaction_is_open_that_began_with_what_was_taken_back(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(transactional(1, 0), 0), 1000)
    batches = [placed(transactional(2, 0), 1), placed(transactional(3, 0), 2)]
    known = producers.before(batches)
    for each in batches:
        producers.update(each, 1000)
    producers.undo(known)
    producers.update(placed(marker_of(1, ControlType.COMMIT), 1), 1000)
    producers.on_high_watermark(2)
    assert producers.first_unstable_offset is None


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "commit", "abort", "replicate", "undo"]), st.integers(1, 4)), max_size=40
)


@given(STEPS)
def test_the_first_unstable_offset_is_that_of_all_that_is_open_or_unreplicated(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    producers = ProducerStateManager(tmp_path_factory.mktemp("state"))
    ongoing: dict[int, int] = {}
    ended: dict[int, int] = {}
    offset = 0
    for what, number in steps:
        if what == "replicate":
            high = max(offset - number, 0)
            producers.on_high_watermark(high)
            ended = {first: marker for first, marker in ended.items() if marker >= high}
        elif what == "undo":
            batches = [
                placed(data, offset + place)
                for place, data in enumerate(
                    (marker_of(number, ControlType.ABORT), transactional(number, 0), transactional(9, 0))
                )
            ]
            known, entries = producers.before(batches), sorted(map(str, producers.entries))
            for each in batches:
                producers.update(each, 1000)
            producers.undo(known)
            assert sorted(map(str, producers.entries)) == entries
            assert producers.end_offset == offset
        else:
            if what == "write":
                data = transactional(number, 0)
                ongoing.setdefault(number, offset)
            else:
                data = marker_of(number, ControlType[what.upper()])
                if number in ongoing:
                    ended[ongoing.pop(number)] = offset
            producers.update(placed(data, offset), 1000)
            offset += 1
        assert producers.first_unstable_offset == min([*ongoing.values(), *ended], default=None)


class Counted(int):
    """An offset that counts how often it is compared with another."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return super().__lt__(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return super().__gt__(other)


@pytest.mark.source
def test_a_marker_is_taken_note_of_without_a_look_at_all_that_are_not_replicated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "read_marker", lambda _: EndTransactionMarker(ControlType.COMMIT, 0))
    monkeypatch.setattr(Counted, "compared", 0)
    producers = ProducerStateManager(tmp_path)
    count = 1000
    for offset in range(0, 2 * count, 2):
        for each, is_control in ((offset, False), (offset + 1, True)):
            producers.update(_batch(each, is_control=is_control), 1000)
    assert producers.first_unstable_offset == 0
    assert Counted.compared < 40 * count


def _batch(offset: int, *, is_control: bool) -> SimpleNamespace:
    return SimpleNamespace(
        base_offset=Counted(offset),
        last_offset=offset,
        next_offset=offset + 1,
        producer_id=1,
        producer_epoch=0,
        base_sequence=offset,
        last_sequence=offset,
        max_timestamp=1000,
        record_count=1,
        is_control=is_control,
        is_transactional=True,
    )


def test_a_marker_that_was_taken_back_holds_no_other_up(tmp_path: Path) -> None:
    """It was the first of what was refused; the other's comes before it when it comes again."""
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(transactional(2, 0), 0), 1000)
    producers.update(placed(transactional(1, 0), 1), 1000)
    refused = placed(marker_of(1, ControlType.ABORT), 2)
    before = producers.before([refused])
    producers.update(refused, 1000)
    producers.undo(before)
    assert (producers.first_unstable_offset, producers.end_offset) == (0, 2)
    producers.update(placed(marker_of(2, ControlType.COMMIT), 2), 1000)
    producers.update(placed(marker_of(1, ControlType.ABORT), 3), 1000)
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 1
    producers.on_high_watermark(4)
    assert producers.first_unstable_offset is None
