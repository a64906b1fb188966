"""The znodes of one session with the ensemble; ``connection.py`` finds a server that answers.

Calls block; a broker makes them on a thread of their own. Watches are one-shot and are handed to the callback that
asked, on kazoo's thread: the callback must only pass the word on.

When the connection is lost the answer to a write may be lost with it. kazoo repeats nothing. The write is looked up
where its author would otherwise take what it has done itself for another's.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

from kazoo.client import KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from sparklog.config.zookeeper_connect import parse_connect
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.zk import znodes
from sparklog.zk.connection import kazoo_client
from sparklog.zk.ownership import acl_of
from sparklog.zk.transactions import commit, failed

OnChange = Callable[[], None]
T = TypeVar("T")
_NOT_OURS = b"\0"
"""What a znode that may not be read is taken to hold: nothing that anybody would write."""

_LOOK_S = 0.1
"""Between two looks whether a first connection is still waited for."""

MOST_BYTES = 900_000
"""Of a znode. ZooKeeper hangs up on a client that sends 1 MiB at once, and with that on all else that it asks."""


class Session(NamedTuple):
    """What it takes to speak for a session: its id, and the password that ZooKeeper gave for it."""

    id: int
    password: bytes


class Stored(NamedTuple):
    """What a znode held, for a write on the condition that it still does."""

    data: bytes
    version: int


class Told(NamedTuple):
    """What tells others of a change: a sequential znode, ``path`` without the number."""

    path: str
    data: bytes


class SessionEvent:
    """What ``on_session`` is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class ZnodeClient:
    """One session with the ensemble. Every failure raises CoordinationError."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout: float,
        connect_timeout: float = 15.0,
        on_session: Callable[[str], None],
        makes_chroot: bool = True,
        security: ZooKeeperSecurity = OPEN,
        given_up: threading.Event | None = None,
    ) -> None:
        """``given_up``: when another thread sets it, the first connection is waited for no longer."""
        ensemble = parse_connect(connect)
        self._session_timeout, self._connect_timeout = session_timeout, connect_timeout
        self._members = random.sample(ensemble.members, len(ensemble.members))
        self._security = security
        self.kazoo = kazoo_client(self._members, session_timeout, security=security)
        self._on_session = on_session
        self._refused_login = False
        self.kazoo.add_listener(self._on_state)
        self._connect(connect, threading.Event() if given_up is None else given_up)
        if security.jaas:
            self._require_login(connect)
        if ensemble.chroot:  # given later: while it connects kazoo would warn of one that is yet to be made
            try:
                if makes_chroot:
                    self.lasting(self.kazoo.ensure_path, ensemble.chroot)
            except CoordinationError:
                self.close()
                raise
            self.kazoo.chroot = ensemble.chroot

    def _connect(self, connect: str, given_up: threading.Event) -> None:
        """Returns when there is a session."""
        is_live = self.kazoo.start_async()
        for _ in range(math.ceil(self._connect_timeout / _LOOK_S)):
            if is_live.wait(_LOOK_S) or self._refused_login or given_up.is_set():
                break
        if self.is_connected:
            return
        if given_up.is_set():  # an attempt that is under way may take seconds to end
            threading.Thread(target=self.close, daemon=True).start()
            raise CoordinationError(f"stopped before a ZooKeeper had answered at {connect}")
        self.close()
        raise CoordinationError(self._why_not_connected(connect))

    def _require_login(self, connect: str) -> None:
        """ZooKeeper hangs up on a session whose user or password is wrong, and says no more."""
        try:
            self.kazoo.exists("/")
        except (AuthFailedError, ConnectionClosedError, SessionExpiredError) as error:
            self.close()
            raise CoordinationError(_login_refused(connect)) from error

    def _why_not_connected(self, connect: str) -> str:
        if self._refused_login:
            return _login_refused(connect)
        seconds, complaint = f"within {self._connect_timeout:.0f} s", self.kazoo.handler.complaint
        if complaint:
            return f"no ZooKeeper at {connect} could be spoken to {seconds} (zookeeper.ssl.*): {complaint}"
        return f"no ZooKeeper answers at {connect} {seconds}; is it running (zookeeper.connect)?"

    def _on_state(self, state: str) -> None:
        if self.kazoo.client_state == KeeperState.AUTH_FAILED:
            self._refused_login = True
        word = {
            KazooState.CONNECTED: SessionEvent.CONNECTED,
            KazooState.SUSPENDED: SessionEvent.SUSPENDED,
            KazooState.LOST: SessionEvent.EXPIRED,
        }[state]
        self._on_session(word)

    def guarded(self, call: Callable[..., T], *args: object) -> T:
        """Run a method of this client; a failure of ZooKeeper comes out as CoordinationError."""
        try:
            return call(*args)
        except NoAuthError as error:
            raise CoordinationError(
                "ZooKeeper lets this broker not do that: a znode is another's (zookeeper.set.acl); all brokers need"
                " certificates of the same subject (zookeeper.ssl.keystore.location)"
            ) from error
        except KazooException as error:
            raise CoordinationError(f"ZooKeeper: {type(error).__name__} {error}".rstrip()) from error

    def lasting(self, call: Callable[..., T], *args: object) -> T:
        """``guarded``, for a call that may be made twice: where the connection breaks, it is made again.

        So for as long as a first connection is waited for.
        """
        again = KazooRetry(max_tries=-1, max_delay=1.0, deadline=self._connect_timeout)
        answer: T = self.guarded(again, call, *args)
        return answer

    @property
    def is_connected(self) -> bool:
        """Whether a server has the session's connection now."""
        return bool(self.kazoo.connected)

    @property
    def session_id(self) -> int:
        return self.session.id

    @property
    def session(self) -> Session:
        """The session that there is now; its id is 0 when there is none."""
        found = self.kazoo.client_id
        return Session(int(found[0]), bytes(found[1])) if found else Session(0, b"")

    def close(self) -> None:
        """End the session: its ephemeral znodes go at once. Calls that still wait for ZooKeeper fail."""
        with suppress(KazooException):  # ZooKeeper is not there to hear of it; the session ends by itself
            self.kazoo.stop()
        self.kazoo.close()

    def end_session(self, session: Session) -> None:
        """End a session of a process that is dead: all its ephemeral znodes go, and no others.

        Raises CoordinationError if ZooKeeper does not answer.
        """
        successor = kazoo_client(self._members, self._session_timeout, session, self._security)
        try:
            successor.start(timeout=self._connect_timeout)
            successor.stop()
        except KazooTimeoutError as error:
            raise CoordinationError("ZooKeeper did not answer while the session of a dead broker was ended") from error
        finally:
            successor.close()

    def own_root(self) -> None:
        """Let nobody else make znodes beside the cluster's: whatever makes ``/controller`` first is the controller."""
        self.kazoo.set_acls("/", acl_of("/"))

    def data(self, path: str) -> bytes | None:
        """What a znode holds; None where there is no such znode."""
        node = self.get(path)
        return None if node is None else bytes(node[0] or b"")

    def stored(self, path: str) -> Stored | None:
        """What a znode holds, and the version that it has; None where there is no such znode. Raises MalformedZnode."""
        node = self.read(path)
        return None if node is None else Stored(bytes(node[0] or b""), node[1].version)

    def stored_each(self, paths: Iterable[str]) -> list[Stored | None]:
        """``stored`` of each of them, asked for together. One that may not be read holds what nobody understands."""
        found: list[Stored | None] = []
        for answer in [self.kazoo.get_async(path) for path in paths]:
            try:
                data, stat = answer.get()
                found.append(Stored(bytes(data or b""), stat.version))
            except NoNodeError:
                found.append(None)
            except NoAuthError:
                found.append(Stored(_NOT_OURS, -1))
        return found

    def exchange(self, path: str, old: Stored | None, data: bytes | None, told: Told) -> bool:
        """Have the znode hold ``data`` (None: not be there) where it holds ``old``, and tell of it, both or neither.

        False where it holds something else by now. The znodes above a new one, and above what tells of it, are made.
        Raises ApiError(INVALID_REQUEST) for more data than a znode may have.
        """
        _check_size(path, old, data)
        transaction = self.kazoo.transaction()
        if old is None and data is not None:
            self.ensure(each.rpartition("/")[0] for each in (path, told.path))
            transaction.create(path, data)
        elif old is not None and data is not None:
            transaction.set_data(path, data, version=old.version)
        elif old is not None:
            transaction.delete(path, version=old.version)
        transaction.create(told.path, told.data, sequence=True)
        return not failed(commit(transaction, partial(self._replaced, path, old, data)))

    def _replaced(self, path: str, old: Stored | None, data: bytes | None) -> bool:
        """Whether ``data`` is what came next in a znode after ``old``."""
        expected = None if data is None else Stored(data, 0 if old is None else old.version + 1)
        return self.stored(path) == expected

    def sync(self, path: str) -> None:
        """What is read from now on is no older than what anybody had written when this was called."""
        self.kazoo.sync(path)

    def ensure(self, paths: Iterable[str]) -> None:
        """Make znodes without data, and those above them, where there are none."""
        for path in paths:
            self.kazoo.ensure_path(path)

    def numbers(self, folder: str, prefix: str, on_change: OnChange | None = None) -> list[int]:
        """The numbers of the sequential znodes in a folder, in order; other znodes there are passed over."""
        return znodes.sequence_numbers(prefix, self.children(folder, on_change))

    def forget_older(self, folder: str, prefix: str, kept_ms: int) -> None:
        """Remove the sequential znodes made more than ``kept_ms`` before the newest; ZooKeeper has stamped both."""
        paths = [f"{folder}/{prefix}{number:010d}" for number in self.numbers(folder, prefix)]
        stats = [self.kazoo.exists(path) for path in paths]
        found = {path: stat for path, stat in zip(paths, stats, strict=True) if stat is not None}
        newest = max(found.values(), key=lambda stat: stat.czxid, default=None)  # a number may be a stranger's
        for path, stat in found.items():
            if newest is not None and newest.ctime - stat.ctime > kept_ms:
                self._delete(path)

    def names(self, path: str) -> list[str]:
        """The names below a znode; none where there is no such znode."""
        try:
            return sorted(self.kazoo.get_children(path))
        except NoNodeError:
            return []

    def read(self, path: str):  # type: ignore[no-untyped-def]
        """``get`` of what others may have written: raises MalformedZnode for what this broker may not read."""
        with readable(path):
            return self.get(path)

    def get(self, path: str):  # type: ignore[no-untyped-def]
        """Data and stat of a znode, as kazoo gives them; None where there is no such znode."""
        try:
            return self.kazoo.get(path)
        except NoNodeError:
            return None

    def children(self, path: str, on_change: OnChange | None) -> list[str]:
        """The names below a znode, which is made if there is none; ``on_change`` is told when one comes or goes."""
        try:
            return sorted(self.kazoo.get_children(path, watch=watching(on_change)))
        except NoNodeError:
            self.kazoo.ensure_path(path)
            return sorted(self.kazoo.get_children(path, watch=watching(on_change)))

    def _delete(self, path: str) -> None:
        with suppress(NoNodeError):
            self.kazoo.delete(path)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """A znode that may not be read is malformed to us: MalformedZnode says so."""
    try:
        yield
    except NoAuthError as error:
        raise MalformedZnode(f"znode {path} may not be read by this broker: it is another's") from error


class _Watch(NamedTuple):
    """kazoo keeps a path's watches in a set until they fire: the same callback again must be an equal member of it."""

    on_change: OnChange

    def __call__(self, _event: object) -> None:
        self.on_change()


def watching(on_change: OnChange | None) -> _Watch | None:
    return None if on_change is None else _Watch(on_change)


def _login_refused(connect: str) -> str:
    return (
        f"ZooKeeper at {connect} took neither user nor password, or has no SASL (sparklog.zookeeper.sasl.jaas.config)"
    )


def _check_size(path: str, old: Stored | None, data: bytes | None) -> None:
    """Raises ApiError unless ZooKeeper takes it; what is too large already may become smaller."""
    if data is not None and len(data) > max(MOST_BYTES, 0 if old is None else len(old.data) - 1):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{path} would have {len(data)} bytes, and a znode has {MOST_BYTES} at most: set less of it",
        )
