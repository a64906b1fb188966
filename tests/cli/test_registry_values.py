"""Values of a schema registry: what becomes of lines, and of options that do not go together."""

import json

import pyarrow as pa
import pytest

from sparklog.cli.records.rows import JsonLines, TextLines
from sparklog.cli.registry_values import RegistryLines, value_decoder, value_encoder
from sparklog.errors import IncompatibleSchema, RegistryUnavailable, SchemaNotFound, SerializationError
from sparklog.registry import SchemaRegistry, ValueDecoder
from sparklog.testing.registry import Refusal, schema_registry
from sparklog.web.decoding import IMPATIENT

pytest.importorskip("fastavro")

LONG = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "long"}]}
TEXT = TextLines(b":", None, null_empty=True, headers=(), timestamp=None)


@pytest.fixture
def served():
    """The URL of a registry, and what it knows."""
    with schema_registry() as found:
        yield found


@pytest.fixture
def schema(tmp_path):
    file = tmp_path / "number.avsc"
    file.write_text(json.dumps(LONG))
    return file


def test_values_become_those_of_the_schema_and_keys_and_tombstones_stay(served, schema):
    lines = RegistryLines(TEXT, value_encoder(served[0], None, schema), "t")
    rows, bad = lines.rows(pa.array([b'a:{"n": 1}', b"b:", b'c:{"n": 3}']))
    assert bad is None
    assert rows.key.to_pylist() == [b"a", b"b", b"c"]
    decode = ValueDecoder(SchemaRegistry(schema_registry_url=served[0])).decode
    assert [each and decode(each) for each in rows.value.to_pylist()] == ['{"n": 1}', None, '{"n": 3}']
    assert lines.is_ordered
    assert lines.separator == b":"


def test_the_lines_before_the_first_that_is_no_value_are_kept(served, schema):
    lines = RegistryLines(TEXT, value_encoder(served[0], None, schema), "t")
    rows, bad = lines.rows(pa.array([b'a:{"n": 1}', b'b:{"n": 2}', b'c:{"m": 3}', b"d:{"]))
    assert rows.key.to_pylist() == [b"a", b"b"]
    assert len(rows.value) == 2
    assert bad.row == 2
    assert bad.why == "has a value that cannot be written: record Number has no field 'm'"


def test_a_line_that_is_no_record_may_come_before_that(served, schema):
    lines = RegistryLines(JsonLines(), value_encoder(served[0], None, schema), "t")
    texts = [json.dumps({"value": '{"n": 1}'}).encode(), b"{}", json.dumps({"value": "x"}).encode()]
    rows, bad = lines.rows(pa.array(texts))
    assert len(rows.value) == 1
    assert (bad.row, bad.why) == (1, "has neither of value and value_base64")
    rows, bad = lines.rows(pa.array([*texts[::2], b"{}"]))
    assert len(rows.value) == bad.row == 1
    assert bad.why.startswith("has a value that cannot be written")


def test_a_file_of_json_schema_is_told_by_its_name(served, tmp_path):
    file = tmp_path / "number.schema.json"
    file.write_text('{"type": "object", "required": ["n"]}')
    lines = RegistryLines(TEXT, value_encoder(served[0], None, file), "t")
    rows, bad = lines.rows(pa.array([b'a:{"n": 1.5}', b"b:{}"]))
    assert rows.value.to_pylist()[0][5:] == b'{"n":1.5}'
    assert "'n' is a required property" in bad.why
    assert [each.kind for each in served[1].ids] == ["JSON"]


def test_the_registry_is_asked_before_a_line_is_read(served, schema):
    with pytest.raises(SchemaNotFound):
        RegistryLines(TEXT, value_encoder(served[0], None, None), "t")
    RegistryLines(TEXT, value_encoder(served[0], None, schema), "t")
    schema.write_text(json.dumps({**LONG, "fields": [{"name": "n", "type": "string"}]}))
    with pytest.raises(IncompatibleSchema):
        RegistryLines(TEXT, value_encoder(served[0], None, schema), "t")


def test_a_schema_needs_a_registry(run, schema):
    result = run("produce", "t", "--schema", schema)
    assert result.status == 2
    assert "give --registry or --registry-config too" in result.err


@pytest.mark.parametrize("text", [b"\xff", b"{", b'{"type": "no"}'])
def test_what_is_no_schema_is_refused(served, tmp_path, text):
    file = tmp_path / "trip.avsc"
    file.write_bytes(text)
    with pytest.raises(SerializationError):
        value_encoder(served[0], None, file)


@pytest.mark.parametrize(
    ("said", "asked"), [("", 1), ("schema.registry.max.retries=2\nschema.registry.retries.wait.ms=0", 3)]
)
def test_the_page_waits_for_a_registry_as_its_file_says_and_else_not_long(served, tmp_path, said, asked):
    url, registry = served
    registry.broken = lambda: Refusal(503, 50301, "electing")
    file = tmp_path / "registry.properties"
    file.write_text(said)
    with pytest.raises(RegistryUnavailable):
        value_decoder(url, file, IMPATIENT).decode(b"\0\0\0\0\7")
    assert registry.requests["GET /schemas/ids/7"] == asked
