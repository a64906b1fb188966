"""Which clients may read and change the znodes that a broker makes, where ``zookeeper.set.acl`` asks for that.

The rule is Kafka 3.9's (``ZkData.defaultAcls``): all rights for those as whom the session is authenticated, and reading
for everybody, but not below the paths that hold secrets. The root of the old consumers is everybody's. Every broker of
the cluster must be the same to ZooKeeper: the same subject of its certificate.

It holds for every znode, whoever asks for it: the client adds it, not its caller.
"""

from __future__ import annotations

from kazoo.client import KazooClient, TransactionRequest
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from sparklog.zk import znodes

SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""What begins so is not for everybody to read."""


def acl_of(path: str) -> list[ACL]:
    """The list of a znode, by its path below the cluster's chroot."""
    if path == znodes.CONSUMERS:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(SENSITIVE):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


class OwningClient(KazooClient):  # type: ignore[misc]
    """Makes every znode with its list."""

    def create_async(self, path, value=b"", acl=None, *args, **options):  # type: ignore[no-untyped-def]
        return super().create_async(path, value, acl or acl_of(path), *args, **options)

    def transaction(self) -> _OwningTransaction:
        return _OwningTransaction(self)


class _OwningTransaction(TransactionRequest):  # type: ignore[misc]
    def create(self, path, value=b"", acl=None, *args, **options):  # type: ignore[no-untyped-def]
        super().create(path, value, acl or acl_of(path), *args, **options)
