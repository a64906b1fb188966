"""Delegation tokens in ZooKeeper, as Kafka 3.9 writes them (``ZkData.scala``, ``DelegationTokenManagerZk.scala``).

A token is ``/delegation_token/tokens/ID``, JSON of version 3; versions 1 and 2 have no requester, which is the owner
then. Principals are percent-encoded, as the names of users are. A change is told of by a numbered znode under
``/delegation_token/token_changes`` that holds the id. No HMAC is written anywhere.

A change is a compare-and-set, and is told of in the same transaction. So a token that one broker ends is not brought
back by another that renews it at the same time, as Kafka's would be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.security.acl.znode import is_storable
from sparklog.security.delegation.token import DelegationToken
from sparklog.security.principal import Principal
from sparklog.zk.altering import altered
from sparklog.zk.entities import desanitize, sanitize
from sparklog.zk.notifications import NotificationFolder
from sparklog.zk.znode_client import Stored, Told, ZnodeClient

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = "token_change_"
_VERSION = 3
_FIRST_WITH_REQUESTER = 3
_MOST_BYTES = 1 << 19
"""Of a token with its renewers; ZooKeeper hangs up on a client that sends 1 MiB."""


class Found(NamedTuple):
    """All tokens that there are; ``malformed`` says of those that cannot be read why."""

    tokens: dict[str, DelegationToken]
    malformed: dict[str, str]


class TokenStore:
    """Failures raise what those of ``ZnodeClient`` do: call the methods by ``guarded`` or ``lasting``."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk
        self.changes = NotificationFolder(zk, CHANGES, CHANGE_PREFIX, _decode_change)
        """Which tokens changed, by their ids."""

    def ensure_tree(self) -> None:
        """Make the folders that Kafka makes."""
        self._zk.ensure((CHANGES, TOKENS))

    def read(self, token_id: str) -> DelegationToken | None:
        """The token; None where there is none. Raises MalformedZnode."""
        return _decoded(token_id, self._zk.stored(token_path(token_id)))

    def read_all(self) -> Found:
        """Every token, those that cannot be read apart."""
        found, ids = Found({}, {}), self._zk.names(TOKENS)
        for token_id, stored in zip(ids, self._zk.stored_each(map(token_path, ids)), strict=True):
            try:
                token = _decoded(token_id, stored)
                if token is not None:
                    found.tokens[token_id] = token
            except MalformedZnode as error:
                found.malformed[token_id] = str(error)
        return found

    def change(
        self, token_id: str, change: Callable[[DelegationToken | None], DelegationToken | None]
    ) -> DelegationToken | None:
        """Store what ``change`` makes of the token as it is, and tell of it; what it has made. None: there is none.

        ``change`` may be called again. Raises what it raises, MalformedZnode, and ApiError(INVALID_REQUEST) for a token
        that is too large.
        """
        path = token_path(token_id)
        told = Told(f"{CHANGES}/{CHANGE_PREFIX}", token_id.encode())
        what = f"delegation token {token_id}"
        _, after = altered(self._zk, what, path, told, partial(_decoded, token_id), _encoded, change)
        return after


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode(token: DelegationToken) -> bytes:
    """Raises ApiError(INVALID_REQUEST) for one that is too large, because of its renewers."""
    value = {
        "version": _VERSION,
        "owner": sanitize(str(token.owner)),
        "tokenRequester": sanitize(str(token.requester)),
        "renewers": [sanitize(str(each)) for each in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.id,
    }
    data = json.dumps(value, separators=(",", ":")).encode()
    if len(data) > _MOST_BYTES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(token.renewers)} renewers with such names are too many")
    return data


def decode(token_id: str, data: bytes) -> DelegationToken:
    """Raises MalformedZnode, also where it is the token of another id."""
    path = token_path(token_id)
    try:
        value = json.loads(data)
        if value["version"] not in range(1, _VERSION + 1):
            raise ValueError(f"version {value['version']!r}")
        owner = _principal(value["owner"])
        requester = _principal(value["tokenRequester"]) if value["version"] >= _FIRST_WITH_REQUESTER else owner
        renewers = tuple(map(_principal, value["renewers"]))
        issued, most, expiry = (_time(value[f"{name}Timestamp"]) for name in ("issue", "max", "expiry"))
        if value["tokenId"] != token_id:
            raise ValueError(f"token {value['tokenId']!r}")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedZnode(f"znode {path} does not hold a delegation token: {error!r}") from error
    return DelegationToken(token_id, owner, requester, renewers, issued, most, expiry)


def _decoded(token_id: str, found: Stored | None) -> DelegationToken | None:
    return None if found is None else decode(token_id, found.data)


def _encoded(token: DelegationToken | None) -> bytes | None:
    return None if token is None else encode(token)


def _decode_change(path: str, data: bytes) -> str:
    token_id = data.decode(errors="replace")
    if not is_storable(token_id):
        raise MalformedZnode(f"znode {path} does not tell of a change of a delegation token")
    return token_id


def _principal(text: str) -> Principal:
    """Kafka lets the kind and the name be empty."""
    kind, separator, name = desanitize(text).partition(":")
    if not separator:
        raise ValueError(f"{text!r} is no principal")
    return Principal(kind, name)


def _time(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"time {value!r}")
    return value
