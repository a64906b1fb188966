"""Which version of each API two peers share, and the reading of answers in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sparklog.errors import ApiError, ErrorCode, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch, produce
from sparklog.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, highest_version
from sparklog.structs import Endpoint

API_VERSIONS_ASKED = 3


def api_versions_request(software: str, version: str) -> ApiVersionsRequest:
    """What a client says first on a connection."""
    return ApiVersionsRequest(
        version=API_VERSIONS_ASKED, client_software_name=software, client_software_version=version
    )


class PeerVersions:
    """The ranges that a peer offered, and the choice among them."""

    def __init__(self, peer: Endpoint, response: ApiVersionsResponse) -> None:
        self._peer = peer
        self._ranges = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        finalized = getattr(response, "finalized_features", None) or ()
        self.features: dict[str, int] = {each.name: each.max_version_level for each in finalized}
        """The features on which the cluster has settled, by their levels; empty where a broker does not tell."""

    def serves(self, api: ApiKey) -> bool:
        """Whether the peer offers any version of the API."""
        return api in self._ranges

    def highest(self, api: ApiKey) -> int:
        """The newest version that the peer offers, whether we speak it or not; -1 for none."""
        return int(self._ranges.get(api, (0, -1))[1])

    def best(self, api: ApiKey, ceiling: int | None = None) -> int:
        """The newest version that both speak. Raises ApiError(UNSUPPORTED_VERSION) if there is none."""
        ours = highest_version(api) if ceiling is None else ceiling
        if api is ApiKey.PRODUCE:
            ours = min(ours, produce.MAX_VERSION)
        elif api is ApiKey.FETCH:
            ours = min(ours, fetch.MAX_VERSION)
        low, high = self._ranges.get(api, (0, -1))
        if min(high, ours) < low:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {self._peer} speaks {api.name} versions {low} to {high}, this client up to {ours}",
            )
        return int(min(high, ours))


class _Connection(Protocol):
    endpoint: Endpoint

    def close(self) -> None: ...


@contextmanager
def answer_of(connection: _Connection, api: ApiKey) -> Iterator[None]:
    """Around the decoding of an answer: one that cannot be read ends the connection, and the error names the broker."""
    try:
        yield
    except RemoteProtocolError as error:
        connection.close()
        raise RemoteProtocolError(f"broker {connection.endpoint} answered {api.name}: {error}") from error
