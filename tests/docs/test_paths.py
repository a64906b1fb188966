"""The files and folders of this repository that the pages name are there, by as much of their paths as is said."""

import re

import pytest
from docs.markdown import PAGES, ROOT, name

FOLDERS = ("src", "tests", "docs", "conf", "jobs", "benchmarks", "notebooks")
CODE = re.compile(r"`([\w/.-]+)`")
FILE = re.compile(r"[\w/.-]*/[\w.-]+\.(py|pyi|pyx|pxi|js)")
ALONE = re.compile(r"[\w-]+\.(pyi|pyx|pxi|js)|test_\w+\.py")
"""Names without a folder that are files of this repository, whatever a page is about."""


def there():
    """The paths of all files and folders, each behind a slash."""
    return [f"/{path.relative_to(ROOT)}" for top in FOLDERS for path in (ROOT / top, *(ROOT / top).rglob("*"))]


def named(text):
    """What a page names in code: files, and folders that end in a slash and lie in one of ours."""
    for found in CODE.findall(text):
        is_folder = found.endswith("/") and found.split("/")[0] in FOLDERS
        if FILE.fullmatch(found) or ALONE.fullmatch(found) or is_folder:
            yield found


def missing(text, paths):
    return [each for each in named(text) if not any(path.endswith(f"/{each.rstrip('/')}") for path in paths)]


@pytest.fixture(scope="module")
def paths():
    return there()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_is_named_is_there(page, paths):
    assert missing(page.read_text(), paths) == []


@pytest.mark.parametrize("gone", ["log/lookup.py", "_gone.pxi", "test_gone.py", "src/sparklog/gone/", "page-gone.js"])
def test_a_file_that_is_not_there_is_found(gone, paths):
    told = f"see `{gone}`, `log/segment.py` and `src/sparklog/log/`; run `more.py`"
    assert missing(told, paths) == [gone]
