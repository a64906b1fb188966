"""What the page cache holds, of a file that is really there."""

import os

from sparklog.net.page_cache import is_cached, read_ahead, read_if_cached
from sparklog.structs import FileSlice


def test_what_was_just_read_is_at_hand(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4096)
    with path.open("rb") as file:
        piece = FileSlice(file, 100, 1_000_000)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        read_ahead(piece)
        assert is_cached(piece)
        assert bytes(read_if_cached(piece)) == path.read_bytes()[100:1_000_100]


def test_what_lies_beyond_the_end_of_the_file_is_not_waited_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        piece = FileSlice(file, 5, 100)
        read_ahead(piece)
        assert bytes(read_if_cached(piece)) == b"56789"
        assert is_cached(piece)
