"""The tables of options in the page for Spark's users, against the table of options."""

from pathlib import Path

import pytest

from sparklog.spark.options.definition import Use
from sparklog.spark.options.page import options_table, with_tables
from sparklog.spark.options.table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_tables_of_the_page_are_the_options():
    page = PAGE.read_text()
    assert page == with_tables(page), "stale: python -m sparklog.spark.options.page docs/spark.md"


@pytest.mark.parametrize("use", [Use.READ, Use.WRITE])
def test_the_page_has_every_option(use):
    names = [each.name for each in OPTIONS if each.uses & use]
    assert [name for name in names if f"\n| `{name}` | " not in PAGE.read_text()] == []
    assert options_table(use) in PAGE.read_text()


def test_what_stands_around_a_table_stays():
    page = "before\n<!-- options of writing: how -->\nold\n<!-- end of options -->\nafter\n"
    before, table, after = with_tables(page).partition(options_table(Use.WRITE))
    assert table
    assert before == "before\n<!-- options of writing: how -->\n\n"
    assert after == "\n<!-- end of options -->\nafter\n"


def test_a_row_says_what_an_option_takes_and_where():
    read = options_table(Use.READ)
    assert (
        "| `maxTriggerDelay` | time: `500ms`, `30s`, `15m`, `1h`; a bare number is milliseconds | `15m` | stream | "
        in read
    )
    assert "| `earliest`, in a stream `latest` | any | " in read
    assert "| `auto`, `never` or `always` | `auto` | any | " in read
    assert "| directories, separated by commas |  | batch | " in read
    assert "| `24h` | batch | " in options_table(Use.WRITE)
