from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.config.properties import format_properties, load_properties
from sparklog.errors import ConfigError


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "server.properties"
        path.write_text(text)
        return load_properties(path)

    return load


def test_a_properties_file(load):
    text = "# a comment\n! another\n\n  broker.id = 7 \nzookeeper.connect=h:1/a=b\nempty=\nbroker.id=8\n"
    assert load(text) == {"broker.id": "8", "zookeeper.connect": "h:1/a=b", "empty": ""}


def test_a_line_goes_on_behind_a_backslash(load):
    text = 'sasl.jaas.config=Module required \\\n    username="a" \\\r\n\tpassword="#b";\n# no \\\nnext=1'
    assert load(text) == {"sasl.jaas.config": 'Module required username="a" password="#b";', "next": "1"}


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("a: b", ("a", "b")),
        (r"a\:b=c", ("a:b", "c")),
        (r"a=C:\\dir\\file", ("a", r"C:\dir\file")),
        (r"a=one\ttwo\u00e9\=", ("a", "one\ttwoé=")),
        ("a=b\\\\", ("a", "b\\")),
        ("a=b\\", ("a", "b")),
        ("a=b\u2028c\x0bd", ("a", "b\u2028c\x0bd")),
    ],
)
def test_characters_are_meant_as_java_means_them(load, line, pair):
    assert load(line) == dict([pair])


@given(st.text(st.characters(codec="utf-8"), max_size=20))
@example("\U0001f600é")
@example("\\ \n\t")
@example(" ")
@example("\u2028x\x1f")
@example('Module required password="a\\"b";')
def test_what_is_written_is_read(value):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "made.properties"
        path.write_text(format_properties({"a": value, "b": "1"}), encoding="utf-8", newline="")
        assert load_properties(path) == {"a": value, "b": "1"}


def test_a_line_that_sets_nothing_is_counted_and_not_shown(load):
    with pytest.raises(ConfigError, match=r"server\.properties line 2 is not key=value") as caught:
        load("broker.id=1\nsecret\n")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none\.properties: No such file"):
        load_properties(tmp_path / "none.properties")


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "server.properties"
    path.write_bytes(b"a=secret\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text: invalid start byte at byte 8") as caught:
        load_properties(path)
    assert "secret" not in str(caught.value)
