"""A walk through a file: which bytes are a batch, which is good, and what the walk stopped at."""

import os

import crc32c
import pytest
from log.samples import batch_of, in_a_row

from sparklog.log.inspection.batch_walk import BatchWalk, TailKind
from sparklog.record import layout


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.log"


def written(path, *pieces, **how):
    path.write_bytes(b"".join(pieces))
    return BatchWalk(path, **how)


def bytes_of(walk, position=0):
    return [(at, bytes(view)) for at, _, view in walk.batches(position)]


def changed(batch, form, place, value):
    """The batch with another field in its header, and the CRC that it has then."""
    data = bytearray(batch)
    form.pack_into(data, place, value)
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(data[layout.ATTRIBUTES :]))
    return bytes(data)


EMPTY = changed(batch_of(1)[: layout.HEADER_SIZE], layout.INT32, layout.LENGTH, layout.HEADER_SIZE - 12)
"""The smallest batch: a header alone."""


@pytest.mark.parametrize("block", [1, 61, 100, 1 << 20])
def test_a_walk_gives_whole_batches_whatever_it_reads_at_once(path, block):
    batches = in_a_row([batch_of(1, size=300), batch_of(1), EMPTY, batch_of(1)])
    with written(path, *batches, block=block) as walk:
        starts = [sum(map(len, batches[:number])) for number in range(4)]
        assert bytes_of(walk) == list(zip(starts, batches, strict=True))
        assert (walk.end, walk.tail()) == (walk.size, None)
        assert bytes_of(walk, starts[2]) == [(starts[2], batches[2]), (starts[3], batches[3])]
        assert bytes_of(walk, walk.size) == []
        assert walk.end == walk.size


@pytest.mark.parametrize(("place", "odd_bytes"), [(layout.MAGIC, b"\1"), (layout.LENGTH, bytes([0, 0, 0, 48]))])
def test_a_walk_stops_where_no_batch_of_format_2_begins(path, place, odd_bytes):
    first, second = in_a_row([batch_of(1), batch_of(1)])
    odd = bytearray(second)
    odd[place : place + len(odd_bytes)] = odd_bytes
    with written(path, first, odd, second) as walk:
        assert bytes_of(walk) == [(0, first)]
        assert walk.tail()[:3] == (len(first), 2 * len(second), TailKind.FOREIGN)
        assert walk.whole_batch(len(first)) is None


def test_what_is_appended_meanwhile_is_not_looked_at_and_what_is_cut_off_is_missed(path):
    first, second = in_a_row([batch_of(1), batch_of(1)])
    with written(path, first) as walk, path.open("ab") as file:
        file.write(second)
        file.flush()
        assert bytes_of(walk) == [(0, first)]
        assert (walk.size, walk.current_size()) == (len(first), len(first + second))
    with written(path, first, second, block=1) as walk:
        found = walk.batches()
        next(found)
        os.truncate(path, len(first) + 70)
        assert list(found) == []
        assert walk.whole_batch(len(first)) is None


def test_it_tells_of_its_bytes_by_and_by_and_of_each_once(path):
    batches, told = in_a_row([batch_of(1)] * 3), []
    with written(path, *batches, b"?" * 9, block=1, advance=told.append) as walk:
        bytes_of(walk)
        so_far = sum(told)
        assert 0 < so_far <= walk.end
        bytes_of(walk)
        assert sum(told) == so_far
    assert (sum(told), min(told) > 0) == (walk.size, True)
    assert len(told) > 2


def test_what_is_read_is_what_there_is(path):
    with written(path, b"0123456789") as walk:
        assert [bytes(walk.read(*each)) for each in ((2, 3), (8, 5), (10, 5), (12, 5))] == [b"234", b"89", b"", b""]
        view = walk.read(0, 4, reuse=True)
        assert bytes(walk.read(4, 2, reuse=True)) == b"45"
        assert bytes(view) == b"4523", "the buffer is used again"
        kept = walk.read(0, 4)
        walk.read(6, 4, reuse=True)
        assert bytes(kept) == b"0123"


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"\0", TailKind.CUT),
        (bytes(60), TailKind.CUT),
        (bytes(61), TailKind.ZEROS),
        (bytes(200), TailKind.ZEROS),
        (bytes(199) + b"x", TailKind.FOREIGN),
        (b"?" * 61, TailKind.FOREIGN),
        (bytes(batch_of(1))[:-1], TailKind.CUT),
    ],
)
def test_what_the_walk_stopped_at_is_named(path, tail, kind):
    (first,) = in_a_row([batch_of(1)])
    with written(path, first, tail, block=16) as walk:
        assert bytes_of(walk) == [(0, first)]
        assert walk.tail() == (len(first), len(tail), kind, tail[:32])


def test_a_batch_is_good_if_all_that_it_says_can_be_true(path):
    (batch,) = in_a_row([batch_of(1, 2)], 5)
    with written(path, b"?" * 7, batch) as walk:
        assert walk.is_good(7)
        assert walk.is_good(7, 5)
        assert not walk.is_good(7, 6), "its offsets have been"
        assert not walk.is_good(6)
        assert not walk.is_good(walk.size)
    with written(path, batch[:-1]) as walk:
        assert not walk.is_good(0)
    with written(path, batch[:-1], b"!") as walk:
        assert not walk.is_good(0)


@pytest.mark.parametrize(
    ("form", "place", "value", "is_good"),
    [
        (layout.INT32, layout.RECORD_COUNT, 0, True),
        (layout.INT32, layout.RECORD_COUNT, 3, False),
        (layout.INT32, layout.RECORD_COUNT, -1, False),
        (layout.INT16, layout.ATTRIBUTES, layout.ALL_ATTRIBUTES, True),
        (layout.INT16, layout.ATTRIBUTES, layout.ALL_ATTRIBUTES + 1, False),
        (layout.INT16, layout.ATTRIBUTES, -1, False),
        (layout.INT64, layout.BASE_OFFSET, layout.MAX_INT64 >> 1, True),
        (layout.INT64, layout.BASE_OFFSET, (layout.MAX_INT64 >> 1) + 1, False),
        (layout.INT64, layout.BASE_OFFSET, -1, False),
    ],
)
def test_a_batch_of_the_right_crc_is_not_good_if_it_says_what_cannot_be(path, form, place, value, is_good):
    with written(path, changed(batch_of(1, 2), form, place, value)) as walk:
        assert walk.is_good(0) == is_good


def test_the_smallest_batch_is_whole(path):
    with written(path, EMPTY) as walk:
        _, data = walk.whole_batch(0)
        assert bytes(data) == EMPTY
        assert walk.whole_batch(1) is None


def test_the_next_good_batch_is_one_whose_offsets_have_not_been(path):
    batches = in_a_row([batch_of(1)] * 3)
    garbage, size = b"?" * 50, len(batches[0])
    with written(path, garbage, batches[0], batches[2]) as walk:
        assert walk.next_good(0, 0) == 50
        assert walk.next_good(0, 1) == 50 + size
        assert walk.next_good(0, 3) is None
