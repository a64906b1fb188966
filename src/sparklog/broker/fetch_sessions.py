"""Fetch sessions (KIP-227): what an incremental fetch stands for, and which sessions are kept.

A full fetch (epoch 0) may be granted a session: the broker remembers the partitions asked for and what it last told of
each. An incremental fetch (epochs 1, 2, ...) names only what is new, changed or to be forgotten; its answer holds only
the partitions that have records, an error, or another high watermark or log start than was last told.

Invariants:

- A session answers each epoch once and in order. A request with another epoch is refused, and so is an answer whose
  session has gone on to the next epoch meanwhile.
- A client that has all answers of a session knows the high watermark and log start of every partition in it as they
  were last read: what is left out is what he knows.
- A partition that gave records goes behind all others, so that none is kept out of a bounded answer for ever.
- A session names its topics as its first request did, by name or by id; an id that had no name is looked up again with
  each request, one that had one keeps it, so that a topic made anew is told from the one that was asked for.
- There are never more than ``slots`` sessions, nor more than ``MAX_PARTITIONS`` partitions in all of them. A new one
  takes the place of one that was not used for ``eviction_ms``; else of the least one that it outranks. Followers
  outrank clients, and of two alike the one with more partitions the other; but a session younger than ``eviction_ms``
  gives way to none of its own rank.

The rules are those of Kafka 3.9 (``FetchSession.scala``), except for ``MAX_PARTITIONS``. Time is handed in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID

from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest, ForgottenPartition

MAX_PARTITIONS = 500_000
"""Some 200 MB; one request can name millions."""
NO_SESSION = 0
_FULL, _FINAL = 0, -1
_MAX_INT32 = (1 << 31) - 1

NameOf = Callable[[UUID], str | None]
"""The name of the topic with this id, if it is known."""
_Key = tuple[str | UUID, int]
_Rank = tuple[bool, int, int]
"""Followers first, then by size; the id makes it unique."""


class FetchAnswer(NamedTuple):
    """What is to be sent."""

    partitions: list[FetchedPartition]
    session_id: int = NO_SESSION
    error: ErrorCode = ErrorCode.NONE


class Fetch(Protocol):
    """One fetch in hand: what it stands for, and how what was read becomes its answer."""

    asked: list[FetchPartition]
    """Every partition to read; a topic known by id only has an empty name."""

    def answer(self, fetched: list[FetchedPartition]) -> FetchAnswer:
        """``fetched`` has an element for each of ``asked``, in the same order."""
        ...


class SessionlessFetch:
    """A fetch that says everything itself."""

    __slots__ = ("asked",)

    def __init__(self, asked: list[FetchPartition]) -> None:
        self.asked = asked

    def answer(self, fetched: list[FetchedPartition]) -> FetchAnswer:
        return FetchAnswer(fetched)


class _Cached:
    """One partition of a session: what is asked of it, and what was last told."""

    __slots__ = ("asked", "high_watermark", "log_start_offset")

    def __init__(self, asked: FetchPartition, told: FetchedPartition | None = None) -> None:
        self.asked = asked
        self.high_watermark = -1 if told is None else told.high_watermark
        self.log_start_offset = -1 if told is None else told.log_start_offset

    def take(self, asked: FetchPartition) -> None:
        """Ask this from now on; a name that was found stays."""
        self.asked = asked._replace(topic=asked.topic or self.asked.topic)

    def tells(self, fetched: FetchedPartition) -> bool:
        """Whether the answer must hold the partition; what it is told is remembered."""
        failed = fetched.error is not ErrorCode.NONE
        news = (
            failed
            or bool(fetched.records)
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if failed else fetched.high_watermark  # told anew once the error is over
        self.log_start_offset = fetched.log_start_offset
        return news


class FetchSession:
    """One session; the order of its partitions is the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "rank", "ripe", "uses_ids")

    def __init__(self, session_id: int, partitions: dict[_Key, _Cached], *, privileged: bool, uses_ids: bool) -> None:
        self.id = session_id
        self.partitions = partitions
        self.privileged = privileged
        self.uses_ids = uses_ids
        self.epoch = 1
        self.created_ms = self.last_used_ms = 0
        self.rank: _Rank | None = None
        self.ripe = False

    def update(self, asked: list[FetchPartition], forgotten: list[ForgottenPartition]) -> None:
        """Take over what an incremental fetch names."""
        for each in asked:
            key = _key(each, uses_ids=self.uses_ids)
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _Cached(each)
            else:
                cached.take(each)
        for gone in forgotten:
            self.partitions.pop(_key(gone, uses_ids=self.uses_ids), None)

    def resolve(self, name_of: NameOf) -> None:
        """Find the names of the topics that had none yet."""
        for cached in self.partitions.values():
            if not cached.asked.topic:
                cached.asked = cached.asked._replace(topic=name_of(cached.asked.topic_id) or "")

    def prune(self, fetched: list[FetchedPartition]) -> list[FetchedPartition]:
        """What of ``fetched`` is news; what gave records goes to the end."""
        news = []
        for each in fetched:
            key = _key(each, uses_ids=self.uses_ids)
            cached = self.partitions[key]
            if cached.tells(each):
                news.append(each)
                if each.records:
                    del self.partitions[key]
                    self.partitions[key] = cached
        return news


def _key(each: FetchPartition | FetchedPartition | ForgottenPartition, *, uses_ids: bool) -> _Key:
    return (each.topic_id if uses_ids else each.topic), each.partition


class IncrementalFetch:
    """A fetch in a session."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.asked = [cached.asked for cached in session.partitions.values()]

    def answer(self, fetched: list[FetchedPartition]) -> FetchAnswer:
        session = self._session
        if session.epoch != self._epoch:
            return FetchAnswer([], session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return FetchAnswer(session.prune(fetched), session.id)


class FullFetch:
    """A fetch that would like to begin a session."""

    def __init__(self, sessions: FetchSessions, message: FetchRequest, now_ms: int, *, uses_ids: bool) -> None:
        self._sessions = sessions
        self._now_ms = now_ms
        self._uses_ids = uses_ids
        self._privileged = message.replica_id >= 0
        self.asked = list({_key(each, uses_ids=uses_ids): each for each in message.partitions}.values())

    def answer(self, fetched: list[FetchedPartition]) -> FetchAnswer:
        partitions = {
            _key(asked, uses_ids=self._uses_ids): _Cached(asked._replace(topic=told.topic), told)
            for asked, told in zip(self.asked, fetched, strict=True)
        }
        session_id = self._sessions.grant(
            partitions, self._now_ms, privileged=self._privileged, uses_ids=self._uses_ids
        )
        return FetchAnswer(fetched, session_id)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, slots: int, eviction_ms: int, draw: Callable[[int], int]) -> None:
        """``draw(n)`` is a random number from 0 up to, not with, n."""
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._draw = draw
        self._by_use: OrderedDict[int, FetchSession] = OrderedDict()
        self._yielding_to_followers: list[_Rank] = []
        self._yielding_to_all: list[_Rank] = []
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._by_use)

    @property
    def partition_count(self) -> int:
        """In all sessions together."""
        return self._partitions

    def begin(self, message: FetchRequest, now_ms: int, name_of: NameOf, *, uses_ids: bool) -> Fetch:
        """What the request stands for. Raises ApiError, a code for the whole request, if its session is not to be had.

        The client begins with a full fetch again then.
        """
        if message.session_epoch not in (_FULL, _FINAL):
            return self._go_on(message, now_ms, name_of, uses_ids=uses_ids)
        if message.session_id:
            self._remove(self._by_use.get(message.session_id))
        if message.session_epoch == _FINAL:
            return SessionlessFetch(message.partitions)
        return FullFetch(self, message, now_ms, uses_ids=uses_ids)

    def _go_on(self, message: FetchRequest, now_ms: int, name_of: NameOf, *, uses_ids: bool) -> Fetch:
        session = self._by_use.get(message.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if message.session_epoch != session.epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_ids is not session.uses_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(message.partitions, message.forgotten)
        session.epoch = 1 if session.epoch == _MAX_INT32 else session.epoch + 1
        if not session.partitions:
            self._remove(session)
            return SessionlessFetch(message.partitions)
        self._touch(session, now_ms)
        if self._partitions > MAX_PARTITIONS:
            self._remove(session)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if uses_ids:
            session.resolve(name_of)
        return IncrementalFetch(session)

    def grant(self, partitions: dict[_Key, _Cached], now_ms: int, *, privileged: bool, uses_ids: bool) -> int:
        """The id of a new session, or ``NO_SESSION`` if there is no room for it."""
        size = len(partitions)
        if self._partitions + size > MAX_PARTITIONS:
            return NO_SESSION
        if len(self._by_use) >= self._slots and not self._evict((privileged, size, 0), now_ms):
            return NO_SESSION
        session_id = self._unused_id()
        session = FetchSession(session_id, partitions, privileged=privileged, uses_ids=uses_ids)
        session.created_ms = now_ms
        self._by_use[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _unused_id(self) -> int:
        while True:
            session_id = 1 + self._draw(_MAX_INT32 - 1)
            if session_id not in self._by_use:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """It is in use now: put it where it belongs among those that may have to give way."""
        self._by_use.move_to_end(session.id)
        session.last_used_ms = now_ms
        rank: _Rank = (session.privileged, len(session.partitions), session.id)
        ripe = now_ms - session.created_ms > self._eviction_ms
        if rank == session.rank and ripe == session.ripe:
            return
        self._unrank(session)
        session.rank, session.ripe = rank, ripe
        self._partitions += rank[1]
        if ripe:
            insort(self._yielding_to_all, rank)
        if ripe or not session.privileged:
            insort(self._yielding_to_followers, rank)

    def _unrank(self, session: FetchSession) -> None:
        rank = session.rank
        if rank is None:
            return
        self._partitions -= rank[1]
        for order in (self._yielding_to_all, self._yielding_to_followers):
            place = bisect_left(order, rank)
            if order[place : place + 1] == [rank]:
                del order[place]

    def _evict(self, rank: _Rank, now_ms: int) -> bool:
        """Make room for a session of this rank; False if none may be sent away for it."""
        oldest = next(iter(self._by_use.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._remove(oldest)
            return True
        order = self._yielding_to_followers if rank[0] else self._yielding_to_all
        if not order or rank < order[0]:
            return False
        self._remove(self._by_use[order[0][2]])
        return True

    def _remove(self, session: FetchSession | None) -> None:
        if session is not None:
            self._unrank(session)
            del self._by_use[session.id]
