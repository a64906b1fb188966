"""Regular expressions of strangers, in a time that has a bound.

Python's ``re`` goes back and tries again: ``(a|a)*$`` takes it 2^n steps for n letters. RE2, which pyarrow brings,
takes a time linear in the text and in the expression. So the syntax is RE2's: no lookaround, no backreference. An
expression has at most ``MOST_CHARACTERS`` characters, for a repeat ``{1000}`` makes a thousand parts of one.

To understand one may take up to a second, whatever it is used for: not on a loop.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_CHARACTERS = 4_096


def are_found(expression: str, texts: Iterable[str]) -> list[bool]:
    """Of each text, whether a part of it matches.

    Raises ValueError for what is no expression, or is too long.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"the expression {expression[:40]!r}... has more than {MOST_CHARACTERS:,} characters")
    return _asked(expression, expression, [*texts])


def matching(expression: str, texts: Iterable[str]) -> frozenset[str]:
    """Those texts that the expression matches from end to end. Raises ValueError as ``are_found`` does."""
    are_found(expression, [""])  # on its own first: "a)|(b" is none, but would be one between parentheses
    asked = [*texts]
    hits = _asked(expression, rf"\A(?:{expression})\z", asked)
    return frozenset(text for text, hit in zip(asked, hits, strict=True) if hit)


def _asked(expression: str, whole: str, texts: list[str]) -> list[bool]:
    import pyarrow  # a second of a start that only those with an expression need
    import pyarrow.compute

    try:
        found = pyarrow.compute.match_substring_regex(pyarrow.array(texts, pyarrow.string()), whole)
    except (pyarrow.ArrowInvalid, UnicodeEncodeError) as error:
        raise ValueError(f"{expression!r}: {error}") from error
    answers: list[bool] = found.to_pylist()
    return answers
