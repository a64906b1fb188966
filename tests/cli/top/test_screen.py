"""What is drawn."""

import io
import os

from rich.console import Console

from sparklog.cli.top.screen import KEYS, QUIT, cells, drawn, headings, pressed
from sparklog.cli.top.view import SORTS, BrokerRow, GroupRow, TopicRow, View


def text(view, height, sort="name"):
    out = io.StringIO()
    Console(file=out, width=120, height=height).print(drawn(view, sort, height))
    return out.getvalue()


def test_every_sort_has_a_key_of_its_own():
    assert sorted(KEYS.values()) == sorted(SORTS)
    assert "q" not in KEYS


def test_numbers_for_a_person():
    assert cells(["a", None, 0.0, 1.25, 12.5, 1234567, 1234.5]) == ["a", "-", "0", "1.2", "12", "1,234,567", "1,234"]
    assert headings(("records_per_s", "disk_percent")) == ["records/s", "disk percent"]


def test_a_screen_is_never_overrun_and_shows_all_three():
    many = View(
        2.0,
        [BrokerRow(each, "up", 1, 1, 1.0, 1.0, 1, None) for each in range(3)],
        [TopicRow(f"topic-{each:03}", 1, 1.0, 1.0, 1.0, 1) for each in range(100)],
        [GroupRow(f"group[{each:03}]", "Stable", 1.0, 1, 1.0) for each in range(100)],
    )
    found = text(many, 40)
    assert len(found.splitlines()) <= 40
    assert "topic-000" in found
    assert "group[000]" in found
    assert "topic-099" not in found


def test_what_cannot_be_asked_is_said_above_what_was_seen_last():
    out = io.StringIO()
    view = View(1.0, [], [TopicRow("clicks", 1, 1.0, 1.0, 1.0, 1)], [])
    Console(file=out, width=120, height=24).print(drawn(view, "name", 24, "no broker answers"))
    assert "no broker answers" in out.getvalue()
    assert "clicks" in out.getvalue()


def test_nothing_at_all_can_be_drawn():
    assert "sparklog top" in text(View(1.0, [], [], []), 24)


def test_a_name_gives_no_orders_to_the_terminal():
    found = text(View(1.0, [], [], [GroupRow("a\x1b[2Jb\nc", "Empty", 1.0, 1, 1.0)]), 24)
    assert "\x1b[2J" not in found
    assert r"a\x1b[2Jb\nc" in found


def test_keys_that_are_typed_at_once_are_all_heard(monkeypatch):
    read, write = os.pipe()
    with open(read) as stdin, open(write, "wb", buffering=0) as typed:
        monkeypatch.setattr("sys.stdin", stdin)
        assert pressed(0) is None
        typed.write(b"lq")
        assert [pressed(0), pressed(0), pressed(0)] == ["l", QUIT, None]
        typed.close()
        assert pressed(0) == QUIT, "the end of the input"
