"""``BoundedChecks``: jsonschema's validators, so that no schema and no value of a stranger holds the process for ever.

jsonschema gives the patterns of a schema to ``re``, which takes 2^n steps for some; compares each item with each for
``uniqueItems``; and follows references however often: ten definitions of ten references each to the next are 10^10.
Here patterns are RE2's (``sparklog.regular_expression``), items are hashed, and references are counted.

Invariant: every validator that a check comes to is one of these. A part of a schema with a ``$schema`` of its own would
get jsonschema's from ``evolve``; so that gives ours of the same dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sparklog.errors import SerializationError
from sparklog.registry.extras import needed
from sparklog.regular_expression import are_found

_MOST_REFERENCES = 1_000_000
"""That the check of one value follows: more than a value of a megabyte has parts."""
_COUNTED = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED, _PATTERNS = "unevaluatedProperties", "patternProperties"
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|.)", re.DOTALL)
_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


class BoundedChecks:
    """For the checks of one schema, one at a time."""

    def __init__(self) -> None:
        self._left = 0
        self._ours: dict[type, type] = {}

    def begin(self) -> None:
        """Before each check of a value."""
        self._left = _MOST_REFERENCES

    def validator(self, made: type) -> Any:
        """The class in the place of ``made``, which is one of jsonschema's or one of these."""
        if made in self._ours.values():
            return made
        if made not in self._ours:
            self._ours[made] = self._bounded(made)
        return self._ours[made]

    def _bounded(self, made: Any) -> type:
        keywords: dict[str, _Keyword] = {
            "pattern": _pattern,
            _PATTERNS: _pattern_properties,
            "additionalProperties": _additional(made.VALIDATORS["additionalProperties"]),
            "uniqueItems": _unique_items,
        }
        keywords |= {name: self._counted(made.VALIDATORS[name]) for name in _COUNTED if name in made.VALIDATORS}
        ours: Any = needed("jsonschema.validators").extend(made, keywords)
        theirs = ours.evolve

        def evolve(validator: Any, **changes: Any) -> Any:
            found = theirs(validator, **changes)
            wanted = self.validator(type(found))
            return found if wanted is type(found) else wanted(**_values(found))

        ours.evolve = evolve
        return ours  # type: ignore[no-any-return]

    def _counted(self, theirs: _Keyword) -> _Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
            self._left -= 1
            if self._left < 0:
                raise SerializationError(
                    f"a value cannot be checked by its JSON Schema: more than {_MOST_REFERENCES:,} references are met"
                )
            return theirs(validator, value, instance, schema)

        return check


def formats() -> Any:
    """The format checker of a schema itself: its patterns must be expressions."""
    found = needed("jsonschema").FormatChecker(formats=())

    def is_pattern(value: object) -> bool:
        return not isinstance(value, str) or len(_found_in(value, [""])) == 1

    found.checks("regex", raises=ValueError)(is_pattern)
    return found


def refuse_unbounded(schemas: Iterable[Any]) -> None:
    """What is checked by ``re`` all the same. ``schemas`` are parsed, and checked by one another.

    Raises SerializationError.
    """
    if {_UNEVALUATED, _PATTERNS} <= set().union(*map(_names_in, schemas)):
        raise SerializationError(f"a JSON Schema with {_UNEVALUATED} and {_PATTERNS} is not supported: use one of them")


def _names_in(schema: Any) -> set[str]:
    found: set[str] = set()
    todo = [schema]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            found |= each.keys()
            todo.extend(each.values())
        elif isinstance(each, list):
            todo.extend(each)
    return found


def _values(validator: Any) -> dict[str, Any]:
    """What a validator is made of, by the names of the arguments."""
    fields = needed("attrs").fields(type(validator))
    return {each.alias: getattr(validator, each.name) for each in fields if each.init}


def _found_in(pattern: str, texts: Iterable[str]) -> list[bool]:
    """Raises ValueError. JSON can name half of a surrogate pair, which UTF-8 cannot; it counts as U+FFFD."""
    whole = (each.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for each in texts)
    return are_found(_ESCAPE.sub(_as_in_re2, pattern), whole)


def _as_in_re2(escape: re.Match[str]) -> str:
    return rf"\x{{{escape['code']}}}" if escape["code"] else escape[0]


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _found_in(pattern, [instance])[0]:
        yield _error(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        for (name, value), is_meant in zip(instance.items(), _found_in(pattern, instance), strict=True):
            if is_meant:
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional(theirs: _Keyword) -> _Keyword:
    """jsonschema's keyword, which is given what no other keyword speaks of."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        if not validator.is_type(instance, "object"):
            return None
        return theirs(validator, value, _unnamed(instance, schema), {})

    return check


def _unnamed(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    left = {name: value for name, value in instance.items() if name not in schema.get("properties", {})}
    for pattern in schema.get(_PATTERNS, {}):
        hits = _found_in(pattern, left)
        left = {name: value for (name, value), hit in zip(left.items(), hits, strict=True) if not hit}
    return left


def _unique_items(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
    if wanted and validator.is_type(instance, "array") and len({_key(each) for each in instance}) < len(instance):
        yield _error(f"{instance!r} has non-unique elements")


def _key(value: Any) -> tuple[str, Any]:
    """Equal for what JSON counts as equal: 1 and 1.0, not 1 and true."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, list):
        return "array", tuple(map(_key, value))
    if isinstance(value, dict):
        return "object", frozenset((name, _key(each)) for name, each in value.items())
    return "other", value if isinstance(value, str | None) else repr(value)


def _error(text: str) -> Exception:
    return needed("jsonschema.exceptions").ValidationError(text)  # type: ignore[no-any-return]
