import pytest

from sparklog.testing.certificates import Certificates


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    return Certificates()
