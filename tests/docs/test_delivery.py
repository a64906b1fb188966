"""The programs on the pages about delivery do what the pages say: a worker dies in the middle, and another goes on."""

import re
import sys
from pathlib import Path

import pytest

from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.programs import run_program

pytestmark = pytest.mark.integration
PAGES = Path(__file__).parents[2] / "docs" / "delivery"
_PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SEEN = {
    "at-most-once": "handled: 0 1 2 3 4 8 9",
    "at-least-once": "handled: 0 1 2 3 4 4 5 6 7 8 9",
    "exactly-once": "seen:    0 2 4 6 8 10 12 14 16 18",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for the pages: the topics have the names that stand there."""
    with ClusterHarness(tmp_path_factory.mktemp("delivery")) as harness:
        yield harness.bootstrap_servers


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_page_does_what_it_says(page, broker, tmp_path):
    programs = dict(_PROGRAM.findall(page.read_text()))
    assert programs.keys() == {"worker.py", "demo.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    done = run_program([sys.executable, "demo.py", broker], tmp_path, timeout=150)
    assert done.stdout.splitlines()[0] == _SEEN[page.stem]
