"""Makes pages of what lies outside ``docs/``, for MkDocs.

A page may link to a file of the repository, ``../conf/secure.properties``. A site has only pages. So each such file
becomes a page ``source/PATH``, and the link goes there. A notebook becomes its text and its code. The decisions
(``adr/``) come into the navigation by themselves, in the order of their numbers.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".properties": "properties"}


def on_config(config: Any) -> Any:
    """The decisions in place of their folder."""
    docs = Path(config.docs_dir)
    found = sorted(path.relative_to(docs).as_posix() for path in docs.glob("adr/*.md"))
    config.nav = [{"Decisions": found} if "Decisions" in each else each for each in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """A page for each file outside that a page links to."""
    docs = Path(config.docs_dir)
    for name in sorted({name for page in files.documentation_pages() for name in _outside(page.src_uri, docs)}):
        page = _source_page(name, (docs.parent / name).read_text())
        files.append(File.generated(config, _address(name), content=page, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links to files outside going to their pages."""
    here = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        name = _name_outside(here, match[1])
        return posixpath.relpath(_address(name), here or ".") if name else match[1]

    return markdown if here.startswith("source") else _LINK.sub(inside, markdown)


def _outside(page: str, docs: Path) -> list[str]:
    """The files outside ``docs/`` that a page links to, by their paths in the repository."""
    here = posixpath.dirname(page)
    names = (_name_outside(here, target) for target in _LINK.findall((docs / page).read_text()))
    return [name for name in names if name and (docs.parent / name).is_file()]


def _name_outside(here: str, target: str) -> str | None:
    """The path in the repository of what a page in the folder ``here`` links to; None for what lies in ``docs/``."""
    path = posixpath.normpath(posixpath.join(here, target))
    return path.removeprefix("../") if path.startswith("../") else None


def _address(name: str) -> str:
    return f"source/{name}" if name.endswith(".md") else f"source/{name}.md"


def _source_page(name: str, text: str) -> str:
    """The file as a page."""
    if name.endswith(".md"):
        return _LINK.sub("#", text)
    if name.endswith(".ipynb"):
        return "\n\n".join(_cell(each) for each in json.loads(text)["cells"])
    return f"# {name}\n\n{_fenced(_LANGUAGES.get(Path(name).suffix, 'text'), text)}"


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else _fenced("python", text)


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"
