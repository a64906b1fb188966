"""The page that documents the clients, against their code."""

from pathlib import Path

import pytest

from sparklog.client import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from sparklog.client.client_page import names, page, promise

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_page_is_the_code():
    assert PAGE.read_text() == page(), "stale: python -m sparklog.client.client_page > docs/client.md"


@pytest.mark.parametrize(
    ("blocking", "awaited"), [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)]
)
def test_every_method_says_what_it_does(blocking, awaited):
    assert [name for name in names(blocking) if not promise(blocking, awaited, name)] == []
