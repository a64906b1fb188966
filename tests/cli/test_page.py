"""``docs/cli.md`` against the code."""

from pathlib import Path

from sparklog.cli.main import COMMANDS
from sparklog.cli.page import page

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_the_code():
    assert PAGE.read_text() == page(), "stale: python -m sparklog.cli.page > docs/cli.md"


def test_every_command_has_its_heading():
    headings = {line for line in page().splitlines() if line.startswith("### ")}
    assert headings == {f"### sparklog {name}" for name in COMMANDS}
