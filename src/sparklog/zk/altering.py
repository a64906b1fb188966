"""A change of one znode that is judged by what it holds, and told of: compare-and-set, again where another was faster.

Nobody's change is lost, whether it comes by a broker or is written in ZooKeeper by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from sparklog.errors import CoordinationError
from sparklog.zk.znode_client import Stored, Told, ZnodeClient

T = TypeVar("T")
_TRIES: Final = 100
"""Of one change. Each that fails is one that somebody else has made."""


def altered(
    zk: ZnodeClient,
    what: str,
    path: str,
    told: Told,
    decode: Callable[[Stored | None], T],
    encode: Callable[[T], bytes | None],
    change: Callable[[T], T],
) -> tuple[T, T]:
    """What the znode held before, and what ``change`` has made of it, which is stored; ``None`` encoded is no znode.

    ``what`` is for the error. ``change`` may be called again. Nothing is written where it changes nothing. Raises what
    the three functions raise, and CoordinationError where others change the znode all the time.
    """
    zk.sync(path)
    for _ in range(_TRIES):
        found = zk.stored(path)
        before = decode(found)
        after = change(before)
        if after == before or zk.exchange(path, found, encode(after), told):
            return before, after
    raise CoordinationError(f"{what} changes all the time; try again")
