"""Which epoch began where, in memory and on disk."""

import pytest

from sparklog.errors import CorruptRecord
from sparklog.log.leader_epochs import EpochEntry, LeaderEpochCache, read_epochs


@pytest.fixture
def cache(tmp_path):
    return LeaderEpochCache(tmp_path)


def on_disk(tmp_path):
    return LeaderEpochCache(tmp_path)._entries


def test_epochs_are_written(cache, tmp_path):
    for epoch, offset in ((0, 0), (2, 10), (3, 10), (7, 25)):
        before = on_disk(tmp_path)
        assert cache.assign(epoch, offset)
        assert on_disk(tmp_path) == before
        cache.write()
        assert on_disk(tmp_path) == cache._entries
    # Epoch 2 wrote nothing: 3 began where it did.
    assert cache._entries == [EpochEntry(0, 0), EpochEntry(3, 10), EpochEntry(7, 25)]


def test_an_epoch_known_or_older_changes_nothing(cache):
    cache.assign(5, 10)
    for epoch, offset in ((5, 20), (4, 30), (-1, 0)):
        assert not cache.assign(epoch, offset)
    assert cache.latest == (5, 10)


def test_an_offset_belongs_to_the_epoch_that_wrote_it(cache):
    for epoch, offset in ((1, 5), (4, 10)):
        cache.assign(epoch, offset)
    assert [cache.epoch_at(offset) for offset in (0, 4, 5, 9, 10, 99)] == [-1, -1, 1, 1, 4, 4]


def test_where_an_epoch_ended(cache):
    assert cache.end_offset(0, 50) is None
    for epoch, offset in ((1, 5), (4, 10)):
        cache.assign(epoch, offset)
    assert cache.end_offset(0, 50) == (5, 0)
    assert cache.end_offset(1, 50) == (10, 1)
    assert cache.end_offset(3, 50) == (10, 1)
    assert cache.end_offset(4, 50) == (50, 4)
    assert cache.end_offset(9, 50) == (50, 4)


def test_truncation_forgets_what_is_gone(cache, tmp_path):
    for epoch, offset in ((1, 5), (4, 10), (6, 20)):
        cache.assign(epoch, offset)
    cache.truncate_from_end(10)
    assert cache.latest == (1, 5)
    cache.write()
    assert cache._entries == on_disk(tmp_path) == [EpochEntry(1, 5)]
    cache.truncate_from_end(0)
    assert cache.latest is None


def test_a_write_that_fails_is_tried_again_by_the_next(cache, tmp_path, monkeypatch):
    cache.assign(1, 0)
    cache.write()
    cache.assign(2, 10)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            cache.write()
        cache.truncate_from_end(10)
        assert cache.latest == (1, 0)
        cache.assign(3, 10)
        with pytest.raises(OSError, match="No space"):
            cache.write()
        assert cache.latest == (3, 10)
    assert on_disk(tmp_path) == [EpochEntry(1, 0)]
    cache.write()
    assert on_disk(tmp_path) == [EpochEntry(1, 0), EpochEntry(3, 10)]


@pytest.mark.parametrize("content", ["garbage", "0\n1\n1 x\n", "0\n1\n1\n", "0\n5\n"])
def test_garbage_is_refused(tmp_path, content):
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    with pytest.raises(CorruptRecord, match="leader-epoch-checkpoint"):
        LeaderEpochCache(tmp_path)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (4, [(1, 5), (4, 10), (6, 20)]),
        (5, [(1, 5), (4, 10), (6, 20)]),
        (7, [(1, 7), (4, 10), (6, 20)]),
        (10, [(4, 10), (6, 20)]),
        (15, [(4, 15), (6, 20)]),
        (99, [(6, 99)]),
    ],
)
def test_a_new_start_forgets_the_epochs_that_ended_before_it(cache, tmp_path, start, left):
    for epoch, offset in ((1, 5), (4, 10), (6, 20)):
        cache.assign(epoch, offset)
    before = cache.entries
    assert cache.truncate_from_start(start) is (list(before) != left)
    cache.write()
    assert read_epochs(tmp_path / "leader-epoch-checkpoint") == left


@pytest.mark.parametrize("lines", ["4 10\n1 5", "1 5\n1 6", "1 10\n2 5", "-1 0\n1 5", "1 -5\n2 6"])
def test_epochs_that_do_not_rise_are_refused(tmp_path, lines):
    (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n2\n{lines}\n")
    with pytest.raises(CorruptRecord, match="leader-epoch-checkpoint"):
        LeaderEpochCache(tmp_path)


def test_the_first_epoch_is_zero(cache, tmp_path):
    assert cache.latest is None
    assert cache.entries == ()
    cache.assign(-1, 0)
    assert cache.entries == ()
    cache.assign(0, 0)
    assert cache.entries == ((0, 0),)
    cache.write()
    assert read_epochs(tmp_path / "leader-epoch-checkpoint") == [(0, 0)]


def test_where_an_epoch_ended_is_asked_of_known_epochs_only(cache):
    cache.assign(0, 3)
    assert cache.end_offset(-1, 50) is None
    assert cache.end_offset(0, 50) == (50, 0)
    cache.assign(2, 7)
    assert [cache.end_offset(epoch, 50) for epoch in (0, 1, 2, 3)] == [(7, 0), (7, 0), (50, 2), (50, 2)]


def test_all_can_be_forgotten_or_replaced(cache, tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    cache.clear()
    cache.replace([])
    cache.write()
    assert not path.exists(), "nothing has changed"
    cache.replace([(1, 5), (4, 10)])
    cache.write()
    assert list(cache.entries) == read_epochs(path) == [(1, 5), (4, 10)]
    assert cache.latest.start_offset == 10
    cache.clear()
    cache.write()
    assert (list(cache.entries), read_epochs(path)) == ([], [])


def test_a_cache_made_anew_looks_at_no_file(tmp_path):
    (tmp_path / "leader-epoch-checkpoint").write_text("garbage")
    cache = LeaderEpochCache(tmp_path, anew=True)
    assert cache.entries == ()
    cache.assign(1, 2)
    cache.write()
    assert LeaderEpochCache(tmp_path).entries == ((1, 2),)


def test_a_new_start_waits_for_no_disk(cache, monkeypatch):
    cache.assign(1, 5)
    cache.assign(4, 10)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "refused")))
        assert cache.truncate_from_start(12)
        with pytest.raises(OSError, match="refused"):
            cache.write()
    assert cache.entries == ((4, 12),)


@pytest.mark.parametrize("lines", ["1 5\n2 5", "0 0\n2147483647 9223372036854775807"])
def test_the_bounds_of_an_epoch_and_its_start(tmp_path, lines):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(f"0\n2\n{lines}\n")
    assert len(read_epochs(path)) == 2


@pytest.mark.parametrize("lines", ["2147483648 5", "1 9223372036854775808"])
def test_what_no_epoch_or_offset_can_be_is_refused(tmp_path, lines):
    (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n1\n{lines}\n")
    with pytest.raises(CorruptRecord, match="leader-epoch-checkpoint"):
        LeaderEpochCache(tmp_path)
