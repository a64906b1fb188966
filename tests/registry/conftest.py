"""Fixtures: a schema registry, and a client of it."""

import pytest

from sparklog.registry import SchemaRegistry
from sparklog.testing.registry import schema_registry


@pytest.fixture
def served():
    """The URL of a registry, and what it knows."""
    with schema_registry() as found:
        yield found


@pytest.fixture
def server(served):
    return served[1]


@pytest.fixture
def registry(served):
    return SchemaRegistry(schema_registry_url=served[0], schema_registry_max_retries=0)
