"""The page that lists the APIs, against the registry."""

from pathlib import Path

from sparklog.broker.protocol_page import page, promise_of
from sparklog.broker.registry import HANDLERS

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_page_is_the_registry():
    assert PAGE.read_text() == page(), "stale: python -m sparklog.broker.protocol_page > docs/protocol.md"


def test_every_api_says_what_it_does():
    for handler in HANDLERS.values():
        name, _, promise = promise_of(handler).partition(": ")
        assert name.upper() == handler.api.name.replace("_", "")
        assert promise
