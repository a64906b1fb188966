"""Sentences of the pages and of the source name what they are about: a client, a replica, a user."""

import re

from docs.markdown import PAGES, ROOT, name

_NAMELESS = re.compile(r"\b(Who|Whom|Whoever)\b|\b(to|on|with|lets?|because) who\b")
_TITLE = re.compile(r"#+ |\*\*[^*]+\*\*$")


def nameless(path):
    """The places of a file where a sentence begins with "who", or is for one; a title may."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if _NAMELESS.search(line) and not (path.suffix == ".md" and _TITLE.match(line)):
            yield f"{name(path)}:{number}"


def test_no_sentence_is_about_who():
    sources = [path for path in (ROOT / "src").rglob("*.p*") if path.suffix in (".py", ".pyi", ".pyx", ".pxi")]
    assert [place for path in (*PAGES, *sources) for place in nameless(path)] == []
