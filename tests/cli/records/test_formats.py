"""Formats, on columns that are given."""

import pyarrow as pa
import pytest

from sparklog.cli.records.formats import Format
from sparklog.errors import ConfigError
from sparklog.structs import TopicPartition

TP = TopicPartition("t", 3)
COLUMNS = {"value": pa.array([b"ab", None, b""], pa.binary()), "key": pa.array([None, b"k", b""], pa.binary())}


def printed(text, columns=COLUMNS):
    return bytes(Format(text).lines(TP, columns))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("%s", b"ab"),
        ("%s,", b"ab,,,"),
        (r"%k=%s\n", b"=ab\nk=\n=\n"),
        ("%K/%S ", b"-1/2 1/-1 0/0 "),
        ("%R", b"\0\0\0\2\xff\xff\xff\xff\0\0\0\0"),
        ("%t%p", b"t3t3t3"),
        (r"%%\\\x00\xfF\r\t", b"%\\\x00\xff\r\t" * 3),
        ("\u00e9", "\u00e9".encode() * 3),
    ],
)
def test_what_is_printed(text, expected):
    assert printed(text) == expected


def test_of_a_part_of_columns_only_that_part_is_printed():
    assert printed("%s;", {"value": pa.array([b"a", b"b", b"c"], pa.binary())[1:]}) == b"b;c;"
    assert printed("%S;x", {"value": pa.array([b"a"], pa.binary())[:0]}) == b""


def test_only_what_is_needed_is_decoded():
    assert Format("%t").columns == ("value",)
    assert Format("%k%K%o").columns == ("value", "key", "offset")
    assert set(Format("%h%T").columns) == {"value", "headers", "timestamp"}


@pytest.mark.parametrize("text", ["%z", "%", "\\", r"\q", r"\x4", r"\x", "a%"])
def test_what_is_no_format_is_said(text):
    with pytest.raises(ConfigError, match="none of %s"):
        Format(text)
