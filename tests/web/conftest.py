"""The page of the cluster that tests share."""

import pytest
from web.serving import Served


@pytest.fixture(scope="session")
def served(cluster):
    """Read-only, for everybody: the cluster asks for no password."""
    with Served({"bootstrap.servers": cluster.bootstrap_servers}) as found:
        yield found


@pytest.fixture
def browser(served):
    return served.browser()
