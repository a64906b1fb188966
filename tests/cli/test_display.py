"""What a person sees at a terminal, and what a program reads."""

import io
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest

from sparklog.cli.display import moment, progress, show_table

NAMES = ["workers[eu]", "import[/eu]", "billing:key:1", "[bold]", r"a\[b]", "10.0.0.1:9092"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_terminal(monkeypatch):
    """A context in which standard output and standard error are a terminal; it gives what is shown there."""
    for name, value in {"COLUMNS": "80", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)

    @contextmanager
    def context():
        with redirect_stdout(Terminal()) as shown, redirect_stderr(shown):
            yield shown

    return context


@pytest.mark.parametrize("name", NAMES)
def test_a_table_shows_names_as_they_are(at_terminal, name):
    with at_terminal() as shown:
        show_table(["group", "lag"], [[name, 1234], ["plain", None]], right=["lag"])
    for text in (f"{name} ", "1234", "plain"):
        assert text in shown.getvalue()


def test_a_name_longer_than_the_terminal_is_folded(at_terminal):
    name = "x" * 100 + "[eu]"
    with at_terminal() as shown:
        show_table(["group"], [[name]])
    assert name in "".join(shown.getvalue().split())


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_shown_of_what_it_is_as_it_is_called(at_terminal, name):
    with at_terminal() as shown, progress(f"from {name}", 10, "records") as advance:
        advance(10)
    assert f"from {name} " in shown.getvalue()


def test_a_program_reads_lines_with_tabs(capsys):
    show_table(["group", "lag"], [["workers[eu]", 5], ["b", None]])
    assert capsys.readouterr().out == "group\tlag\nworkers[eu]\t5\nb\t-\n"


def test_a_name_gives_no_orders_to_the_terminal_and_makes_no_lines(at_terminal):
    with at_terminal() as shown:
        show_table(["group"], [["a\x1b[2Jb\nc"]])
    assert "\x1b[2J" not in shown.getvalue()
    assert r"a\x1b[2Jb\nc" in shown.getvalue()
    with redirect_stdout(io.StringIO()) as lines:
        show_table(["group", "lag"], [["a\nb\t7", 1]])
    assert lines.getvalue() == "group\tlag\na\\nb\\t7\t1\n"


@pytest.mark.parametrize("time_ms", [(1 << 63) - 1, 1 << 60, -(1 << 62)])
def test_a_time_that_no_calendar_has_is_its_milliseconds(time_ms):
    assert moment(time_ms) == f"{time_ms} ms"
    assert moment(1_372_939_200_000).startswith("2013-07-04T")
