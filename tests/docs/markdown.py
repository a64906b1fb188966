"""The pages as Markdown reads them: their headings, links and blocks of code."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


class Block(NamedTuple):
    """A block of code: where it begins, what language it says it is, and the code."""

    page: str
    line: int
    language: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def name(path: Path) -> str:
    """A page's path in the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def tokens(path: Path) -> tuple[Token, ...]:
    return _tokens_of(path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading, inline in zip(tokens(path), tokens(path)[1:], strict=False):
        if heading.type == "heading_open":
            anchor = _NOT_IN_ANCHORS.sub("", _text(inline).lower()).strip().replace(" ", "-")
            copies = sum(1 for each in found if re.fullmatch(f"{re.escape(anchor)}(-\\d+)?", each))
            found.add(f"{anchor}-{copies}" if copies else anchor)
    return found


def links(path: Path) -> Iterator[str]:
    """Where the links and pictures of a page go."""
    for each in _inline(tokens(path)):
        target = each.attrGet("href") or each.attrGet("src")
        if target is not None:
            yield str(target)


def spans(path: Path) -> Iterator[str]:
    """The code within the text."""
    return _code_within(tokens(path))


def spans_of(text: str) -> list[str]:
    """The code within a text that is no page of its own, such as a cell of a notebook, and its shell blocks."""
    found = _tokens_of(text)
    return [*_code_within(found), *(each.content for each in found if each.type == "fence" and each.info == "sh")]


def spans_under(path: Path, heading: str) -> list[str]:
    """The code within the text of one section, up to the next heading of any level."""
    found: list[Token] = []
    under = False
    for each, inline in zip(tokens(path), tokens(path)[1:], strict=False):
        if each.type == "heading_open":
            under = _text(inline) == heading
        elif under:
            found.append(each)
    return list(_code_within(found))


def blocks(path: Path) -> Iterator[Block]:
    for each in tokens(path):
        if each.type in ("fence", "code_block"):
            assert each.map is not None
            yield Block(name(path), each.map[0] + 1, each.info.strip(), each.content)


def blocks_in(*languages: str) -> list[Block]:
    """Those of all pages that are in one of these languages."""
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def _tokens_of(text: str) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(text))


def _inline(found: Iterable[Token]) -> Iterator[Token]:
    return (child for each in found for child in each.children or ())


def _code_within(found: Iterable[Token]) -> Iterator[str]:
    return (each.content for each in _inline(found) if each.type == "code_inline")


def _text(inline: Token) -> str:
    return "".join(each.content for each in inline.children or ())
