"""Files of keys."""

import io
import sys
from types import SimpleNamespace

import click
import pytest

from sparklog.cli import key_file
from sparklog.cli.key_file import read_keys


@pytest.fixture
def of(tmp_path):
    def read(data, spelling="utf8"):
        path = tmp_path / "keys"
        path.write_bytes(data)
        return read_keys(str(path), spelling)

    return read


def test_what_editors_write_before_the_first_line_is_of_no_key(of):
    assert of(b"\xef\xbb\xbfk3\nk4\n") == [b"k3", b"k4"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_key_a_line(of, end):
    assert of(b"b\na b\r\n\xc3\xa4" + end) == [b"b", b"a b", b"\xc3\xa4"]
    assert of(b"00ff\nC0" + end, "hex") == [b"\0\xff", b"\xc0"]
    assert of(b"AP8=" + end, "base64") == [b"\0\xff"]


@pytest.mark.parametrize(
    ("data", "spelling", "said"),
    [
        (b"", "utf8", "there is no key in it"),
        (b"\n", "utf8", "line 1 is empty"),
        (b"a\n\nb\n", "utf8", "line 2 is empty"),
        (b"a\n\n", "utf8", "line 2 is empty"),
        (b"a\nb\na\n", "utf8", "line 3 has the key of line 1"),
        (b"aa\nAA\n", "hex", "line 2 has the key of line 1"),
        (b"a\n\xff\n", "utf8", "line 2 is not utf8"),
        (b"abc\n", "hex", "line 1 is not hex"),
        (b"secret\n", "hex", "line 1 is not hex"),
        (b"secret!\n", "base64", "line 1 is not base64"),
    ],
)
def test_what_is_wrong_is_told_by_its_line_and_never_quoted(of, data, spelling, said):
    with pytest.raises(click.UsageError) as refused:
        of(data, spelling)
    assert said in refused.value.message
    assert "secret" not in refused.value.message


def test_a_file_that_is_too_large_is_refused(of, monkeypatch):
    monkeypatch.setattr(key_file, "_MOST_READ", 3)
    assert of(b"abc") == [b"abc"]
    with pytest.raises(click.UsageError, match="more than 3 bytes"):
        of(b"abcd")


def test_keys_come_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb")))
    assert read_keys("-", "utf8") == [b"a", b"b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(click.UsageError, match="standard input: there is no key"):
        read_keys("-", "utf8")
