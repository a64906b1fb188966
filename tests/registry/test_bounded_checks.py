"""Schemas and values of strangers: what jsonschema would check for hours is checked, or refused, at once."""

import json

import pytest

from sparklog.errors import SerializationError
from sparklog.registry import Reference, Schema
from sparklog.registry.json_schema import checker
from sparklog.registry.schema import JSON

pytest.importorskip("jsonschema")

_SLOW = "^(a|a)*$"
_LETTERS = "a" * 5_000 + "b"
_DRAFT_7, _DRAFT_2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


def _check(registry, schema, value, references=()):
    checker(registry, Schema(json.dumps(schema), JSON, references))(value)


def _refused(registry, schema, value, words):
    with pytest.raises(SerializationError, match=words):
        _check(registry, schema, value)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": _SLOW},
        {"$schema": _DRAFT_7, "pattern": _SLOW},
        {"allOf": [{"$schema": _DRAFT_7, "pattern": _SLOW}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$schema": _DRAFT_2020, "$id": "urn:a", "pattern": _SLOW}}},
        {"anyOf": [{"pattern": _SLOW}, {"const": 1}]},
    ],
)
def test_a_pattern_that_takes_re_for_ever_ends(registry, schema):
    _refused(registry, schema, _LETTERS, "is not of the JSON Schema")
    _check(registry, schema, "aaa")


def test_a_pattern_is_bounded_behind_the_schema_of_schemas(registry):
    schema = {
        "$id": "urn:own",
        "$schema": _DRAFT_2020,
        "$dynamicAnchor": "meta",
        "$ref": _DRAFT_2020,
        "type": ["object", "string"],
        "pattern": _SLOW,
    }
    _refused(registry, schema, {"not": _LETTERS}, "JSON Schema")


def test_names_of_properties_are_bounded(registry):
    named = {"patternProperties": {_SLOW: {"type": "integer"}}}
    _check(registry, named, {_LETTERS: "x"})
    _refused(registry, named, {"aa": "x"}, "'x' is not of type 'integer'")
    alone = {"properties": {"id": {}}, "patternProperties": {_SLOW: {}}, "additionalProperties": False}
    _check(registry, alone, {"id": 1, "aa": 2})
    _refused(registry, alone, {_LETTERS: 1}, "Additional properties are not allowed")
    typed = {**alone, "additionalProperties": {"type": "integer"}}
    _check(registry, typed, {_LETTERS: 1})
    _refused(registry, typed, {_LETTERS: "x"}, "'x' is not of type 'integer'")


def test_unevaluated_properties_beside_patterns_are_refused(registry):
    registry.register("a", Schema(json.dumps({"patternProperties": {_SLOW: {}}}), JSON))
    schema = {"$ref": "a.json", "unevaluatedProperties": False}
    with pytest.raises(SerializationError, match="use one of them"):
        _check(registry, schema, {_LETTERS: 1}, (Reference("a.json", "a", 1),))


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a{1001}", "a" * 5_000])
@pytest.mark.parametrize("around", [lambda it: {"pattern": it}, lambda it: {"patternProperties": {it: {}}}])
def test_a_pattern_that_is_none_is_refused_with_its_reason(registry, pattern, around):
    _refused(registry, around(pattern), "a", "cannot be read: .* is not a 'regex' .*(expression|characters)")


@pytest.mark.parametrize(
    ("pattern", "value"),
    [(r"^\u00e9$", "é"), (r"^\\u00e9$", r"\u00e9"), (r"^\p{L}+$", "Zürich"), (r"^\d\d$", "12"), ("^.$", "\ud800")],
)
def test_patterns_are_read_as_in_json_schema(registry, pattern, value):
    _check(registry, {"pattern": pattern}, value)
    _refused(registry, {"pattern": pattern}, "--", "does not match")


def test_references_are_counted(registry, monkeypatch):
    monkeypatch.setattr("sparklog.registry.bounded_checks._MOST_REFERENCES", 1_000)
    rows = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}
    _refused(registry, {"$ref": "#/$defs/0", "$defs": {**rows, "40": {}}}, 1, "more than 1,000 references")
    items = checker(registry, Schema('{"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "integer"}}}', JSON))
    for _ in range(3):
        items([1] * 900)


@pytest.mark.parametrize("value", [[1, True, "1", None, [1], {"a": 1}], [{"a": 1, "b": 2}, {"a": 2, "b": 1}], []])
def test_items_that_differ_are_unique(registry, value):
    _check(registry, {"uniqueItems": True}, value)


@pytest.mark.parametrize(
    "value", [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [[1, [2]], [1, [2]]], [None, 1, None]]
)
def test_items_that_are_equal_are_not_unique(registry, value):
    _refused(registry, {"uniqueItems": True}, value, "non-unique")
    _check(registry, {"uniqueItems": False}, value)


def test_many_items_of_several_kinds_are_hashed(registry):
    _check(registry, {"uniqueItems": True}, [*range(20_000), *map(str, range(20_000))])
