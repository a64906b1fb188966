"""Lines to columns and back: whatever the blocks they come in."""

import fcntl
import os
import resource
import threading
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.records import lines


def _split(*blocks):
    return [line for array in lines.split_lines(iter(blocks)) for line in array.to_pylist()]


def test_a_last_line_may_lack_its_newline():
    assert _split(b"one\ntwo") == [b"one", b"two"]


def test_empty_lines_are_lines():
    assert _split(b"\n\na\n") == [b"", b"", b"a"]


def test_no_input_has_no_line():
    assert _split() == []


@given(st.binary(max_size=60).map(lambda data: data.replace(b"a", b"\n")), st.lists(st.integers(0, 60), max_size=6))
def test_where_blocks_end_changes_nothing(data, cuts):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[low:high] for low, high in pairwise(edges) if high > low]
    wanted = data.split(b"\n")
    assert _split(*blocks) == (wanted[:-1] if wanted[-1] == b"" else wanted)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"k:v", b"k", b"v"),
        (b"k:v:w", b"k", b"v:w"),
        (b":v", b"", b"v"),
        (b"k:", b"k", b""),
        (b"no key", None, b"no key"),
        (b"", None, b""),
    ],
)
def test_the_first_separator_ends_the_key(line, key, value):
    keys, values = lines.split_keys(pa.array([b"x:y", line, b"z"], pa.binary())[1:2], b":")
    assert (keys.to_pylist(), values.to_pylist()) == ([key], [value])


def test_joined_lines_show_null_as_nothing_and_heed_slices():
    key = pa.array([b"?", b"k", None, b""], pa.binary())[1:]
    value = pa.array([b"?", b"1", b"2", None], pa.binary())[1:]
    assert bytes(lines.join_lines([key, value], b"=")) == b"k=1\n=2\n=\n"
    assert bytes(lines.join_lines([value], b"=")) == b"1\n2\n\n"
    assert bytes(lines.join_lines([value[:0]], b"=")) == b""


def test_what_a_pipe_has_goes_on_before_the_pipe_ends():
    reading, writing = os.pipe()
    try:
        blocks = lines.read_blocks(reading)
        os.write(writing, b"first\n")
        assert next(blocks) == b"first\n"
        os.write(writing, b"second\n")
        os.close(writing)
        assert list(blocks) == [b"second\n"]
    finally:
        os.close(reading)


def test_no_block_is_larger_than_said_and_none_is_lost(monkeypatch):
    monkeypatch.setattr(lines, "BLOCK", 1000)
    reading, writing = os.pipe()
    data = os.urandom(12_345)

    def write_all():
        with os.fdopen(writing, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=write_all)
    writer.start()
    try:
        blocks = list(lines.read_blocks(reading))
    finally:
        writer.join()
        os.close(reading)
    assert max(map(len, blocks)) <= 1000
    assert b"".join(blocks) == data


def test_a_descriptor_may_have_any_number(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 1024:
        pytest.skip(f"no process may have more than {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1025), hard))
    with path.open("rb") as file:
        high = fcntl.fcntl(file, fcntl.F_DUPFD, 1024)
    try:
        assert list(lines.read_blocks(high)) == [b"a\nb"]
    finally:
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
