"""Both codecs: every test that asks for ``codec`` runs once under each."""

import pytest

from sparklog.record import _impl


@pytest.fixture(scope="module", params=["python", "native"])
def codec(request):
    """The codec that the package uses while the test runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_impl, "codec", _impl.load(request.param))
        yield _impl.codec
