"""The choice of a version."""

from types import SimpleNamespace

import pytest

from sparklog.errors import ApiError, ErrorCode
from sparklog.net.versions import PeerVersions
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch, produce
from sparklog.structs import Endpoint


def peer(**ranges):
    keys = [SimpleNamespace(api_key=ApiKey[a], min_version=low, max_version=high) for a, (low, high) in ranges.items()]
    return PeerVersions(Endpoint("h", 1), SimpleNamespace(api_keys=keys))


def test_the_newest_that_both_speak():
    assert peer(METADATA=(0, 5)).best(ApiKey.METADATA) == 5
    assert peer(METADATA=(0, 500)).best(ApiKey.METADATA, ceiling=9) == 9


def test_the_hot_codecs_end_before_the_schemas_do():
    assert peer(PRODUCE=(0, 500)).best(ApiKey.PRODUCE) == produce.MAX_VERSION
    assert peer(FETCH=(0, 500)).best(ApiKey.FETCH) == fetch.MAX_VERSION


@pytest.mark.parametrize("versions", [peer(), peer(METADATA=(100, 101))])
def test_none_in_common_is_said_with_both_ranges(versions):
    with pytest.raises(ApiError, match=r"broker h:1 speaks METADATA versions .* this client up to") as caught:
        versions.best(ApiKey.METADATA)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
