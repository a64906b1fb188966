import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord
from sparklog.record.varint import read_varint, read_varlong, size_of_varint, write_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_encodings(value, encoded):
    out = bytearray()
    assert write_varint(out, value) == len(out) == size_of_varint(value)
    assert out.hex() == encoded
    assert read_varint(out, 0) == (value, len(out))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varlong_comes_back(value, before):
    out = bytearray(before)
    size = write_varint(out, value)
    assert size == size_of_varint(value)
    assert read_varlong(out, len(before)) == (value, size)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_cut_short(encoded):
    with pytest.raises(CorruptRecord, match="past the end"):
        read_varint(bytes.fromhex(encoded), 0)


def test_too_long():
    with pytest.raises(CorruptRecord, match="longer than 5"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(CorruptRecord, match="longer than 10"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_bits_beyond_the_width_are_dropped():
    assert read_varint(bytes.fromhex("ffffffff7f"), 0) == (-(2**31), 5)


def test_offset_outside_the_buffer():
    with pytest.raises(CorruptRecord):
        read_varint(b"\x00", -1)
