"""Records as JSON lines: what is printed is read again, and what is none is told in words."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.records.json_records import json_lines, read_record
from sparklog.record.columnar import HEADERS_TYPE
from sparklog.structs import TopicPartition

data = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(lambda text: text.encode())
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
headers = st.none() | st.lists(st.tuples(names, data), min_size=1, max_size=3)


@given(st.lists(st.tuples(data, data, headers, st.integers(-1, (1 << 63) - 1)), min_size=1, max_size=4))
def test_what_is_printed_is_the_same_record_when_it_is_read(records):
    keys, values, their_headers, times = zip(*records, strict=True)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(their_headers, HEADERS_TYPE),
        "offset": pa.array(range(len(records)), pa.int64()),
        "timestamp": pa.array(times, pa.int64()),
    }
    lines = json_lines(TopicPartition("t", 3), columns).removesuffix(b"\n").split(b"\n")
    assert [read_record(line) for line in lines] == [(*record, 3) for record in records]


def test_what_a_line_leaves_out_is_the_producer_s():
    assert read_record(b'{"value": "v"}') == (None, b"v", None, None, None)
    assert read_record(b'{"value": null, "headers": [], "timestamp": null}') == (None, None, None, None, None)


DEEP = b'{"value": ' + b"[" * 100_000


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "is no JSON object: Expecting value, character 1"),
        (b"plain", "is no JSON object: Expecting value, character 1"),
        (b'{"value": "v"} {', "is no JSON object: Extra data, character 16"),
        (b"[1]", "is no JSON object"),
        (DEEP, "is no JSON object that can be read"),
        (b'{"value": "\xff"}', "is not UTF-8"),
        (b"{}", "has neither of value and value_base64"),
        (b'{"value": "a", "value_base64": "YQ=="}', "has both of value and value_base64"),
        (b'{"key": null, "key_base64": "YQ==", "value": ""}', "has both of key and key_base64"),
        (
            b'{"vlaue": "a"}',
            "has 'vlaue', which is none of topic, partition, offset, timestamp, key, key_base64, value",
        ),
        (b'{"value": 5}', "has a value that is neither text nor null"),
        (b'{"value": "\\ud800"}', "has a value that is no text"),
        (b'{"value_base64": "a"}', "has a value_base64 that is no base64"),
        (b'{"value_base64": null}', "has a value_base64 that is no base64"),
        (b'{"value": "", "headers": {"a": "b"}}', "has headers that are no list"),
        (b'{"value": "", "headers": ["a"]}', "has a header without a text as its key"),
        (b'{"value": "", "headers": [{"key": null, "value": ""}]}', "has a header without a text as its key"),
        (b'{"value": "", "headers": [{"key": "\\udc00", "value": ""}]}', "has a key of a header that is no text"),
        (b'{"value": "", "headers": [{"key": "a"}]}', "has neither of value and value_base64"),
        (b'{"value": "", "headers": [{"key": "a", "val": ""}]}', "has 'val' in a header, which is none of key, value"),
        (b'{"value": "", "timestamp": 1.5}', "has a timestamp that is no whole number from -1"),
        (b'{"value": "", "timestamp": true}', "has a timestamp that is no whole number from -1"),
        (b'{"value": "", "timestamp": 9223372036854775808}', "has a timestamp that is no whole number from -1"),
        (b'{"value": "", "partition": -1}', "has a partition that is no whole number from 0"),
    ],
    ids=lambda value: value[:40].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_what_is_no_record_is_told_in_words(line, why):
    with pytest.raises(ValueError, match=r"^(is|has) ") as refused:
        read_record(line)
    assert str(refused.value).startswith(why)


def test_json_is_read_however_it_is_spelt():
    line = json.dumps({"value": "é\u2028", "key": "\n", "topic": 5, "offset": None}).encode()
    assert read_record(line)[:2] == (b"\n", "é\u2028".encode())
