"""The mark ``source``: a test that puts something in the place of what compiled modules call runs on their source."""

import pytest

import sparklog

_WHY = "compiled modules call each other past what a test puts in their place; it runs on the source"


def pytest_collection_modifyitems(items):
    if sparklog.not_compiled is None:
        for item in items:
            if item.get_closest_marker("source"):
                item.add_marker(pytest.mark.skip(reason=_WHY))
