"""``HoldingClient``: what members of a group in ZooKeeper do there, many znodes at a time.

Invariants:

- A znode is held only by the session that made it; the answer to each call is about one session, and a call over whose
  end the session was lost raises CoordinationError and leaves nothing behind.
- A lost answer is looked up: what this session has made is found and counts as made.
- A watch is set before what it watches is read.

Failures raise what those of ``ZkClient`` do: call the methods by ``guarded``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NodeExistsError, NoNodeError

from sparklog.errors import CoordinationError
from sparklog.zk.client import ZkClient
from sparklog.zk.znode_client import OnChange, watching


class Seen(NamedTuple):
    """A znode as it is: data, version, the zxid of its creation and of its last write, the session that holds it."""

    data: bytes
    version: int
    created: int
    written: int
    session: int


class Write(NamedTuple):
    """``data`` over ``version``; -1: there must be no such znode."""

    path: str
    data: bytes
    version: int


class HoldingClient(ZkClient):
    """A session whose ephemeral znodes say what is its own."""

    def hold_each(self, wanted: Mapping[str, bytes], *, makes_parents: bool = True) -> dict[str, Seen]:
        """Make these ephemeral znodes, and those above them; the ones that are held by this session, with this data.

        Those left out are another's, or what they stand under is not there. May be called again.
        """
        session = self._present_session()
        made = [(path, self.kazoo.create_async(path, data, ephemeral=True, makepath=makes_parents))
                for path, data in wanted.items()]  # fmt: skip
        failure: KazooException | None = None
        for _, answer in made:
            try:
                answer.get()
            except (NodeExistsError, NoNodeError):
                pass
            except KazooException as error:
                failure = error
        if failure is not None:
            raise failure  # what was made all the same is found by the next call, or goes with the session
        found = dict(zip(wanted, self.seen_each(wanted), strict=True))
        held = {path: each for path, each in found.items() if each and each.session == session}
        if self.session_id != session:
            self.let_go(wanted)
            raise CoordinationError("the ZooKeeper session was lost meanwhile")
        return {path: each for path, each in held.items() if each.data == wanted[path]}

    def let_go(self, paths: Iterable[str]) -> None:
        """Delete those of these znodes that this session holds."""
        named = list(paths)
        seen = self.seen_each(named)
        session = self._present_session()
        own = [path for path, each in zip(named, seen, strict=True) if each is not None and each.session == session]
        for answer in [self.kazoo.delete_async(path) for path in own]:
            with suppress(NoNodeError):
                answer.get()

    def holds(self, path: str, data: bytes) -> bool:
        """Whether this session holds the znode, with this data."""
        (seen,) = self.seen_each([path])
        return seen is not None and seen.session == self._present_session() and seen.data == data

    def _present_session(self) -> int:
        """While the connection is broken nobody knows which session there is: what is one's own cannot be told then."""
        if session := self.session_id:
            return session
        raise ConnectionLoss

    def seen_each(self, paths: Iterable[str]) -> list[Seen | None]:
        """Each of them, asked for together; None for one that there is not."""
        found: list[Seen | None] = []
        for answer in [self.kazoo.get_async(path) for path in paths]:
            try:
                data, stat = answer.get()
                found.append(Seen(bytes(data or b""), stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner))
            except NoNodeError:
                found.append(None)
        return found

    def write_each(self, writes: Sequence[Write]) -> list[int | None]:
        """The versions that the znodes have now; None for one that another has written since. None is ephemeral."""
        asked = [
            self.kazoo.create_async(path, data, makepath=True)
            if version < 0
            else self.kazoo.set_async(path, data, version=version)
            for path, data, version in writes
        ]
        versions: list[int | None] = []
        for write, answer in zip(writes, asked, strict=True):
            try:
                done = answer.get()
                versions.append(0 if write.version < 0 else int(done.version))
            except (BadVersionError, NodeExistsError, NoNodeError):
                versions.append(None)
        return versions

    def remove_each(self, paths: Iterable[str]) -> None:
        """Delete znodes, whoever made them."""
        for answer in [self.kazoo.delete_async(path) for path in paths]:
            with suppress(NoNodeError):
                answer.get()

    def watched(self, path: str, on_change: OnChange) -> bytes | None:
        """What a znode holds; None where there is none yet. ``on_change`` is told when it comes, goes or changes."""
        watch = watching(on_change)
        while True:
            try:
                return bytes(self.kazoo.get(path, watch=watch)[0] or b"")
            except NoNodeError:
                if self.kazoo.exists(path, watch=watch) is None:
                    return None
