"""The page of the metrics, against the table."""

from pathlib import Path

from sparklog.metrics.page import page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_the_table():
    assert PAGE.read_text() == page(), "stale: python -m sparklog.metrics.page > docs/metrics.md"
