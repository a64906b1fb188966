"""Fetch sessions (KIP-227): what an incremental fetch stands for, and which sessions are kept.

A full fetch (epoch 0) may be granted a session: the broker remembers the partitions asked for and what it last told of
each. An incremental fetch (epochs 1, 2, ...) names only what is new, changed or to be forgotten; its answer holds only
the partitions that have records, an error, another high watermark or log start than was last told, another history
than the follower's, or a replica that the consumer is to read instead.

Invariants:

- A session answers each epoch once and in order. A request with another epoch is refused, and so is an answer whose
  session has gone on to the next epoch meanwhile.
- What names many partitions, or stands for many, is served in pieces, between which others are served. Such a request
  holds its session: another one that comes for it meanwhile is refused like one with another epoch. A session whose
  request was given up between two pieces is over, for its client does not know what was told.
- A client that has all answers of a session knows the high watermark and log start of every partition in it as they
  were last read: what is left out is what he knows.
- A partition of which the reader was told all, and that stands as it did then (``replica/caught_up_state.py``), is not
  read again for it. What a session costs is a look at each of its partitions, and a read of those that have moved.
- A partition that gave records goes behind all others, so that none is kept out of a bounded answer for ever.
- A session names its topics as its first request did, by name or by id; an id that had no name is looked up again with
  each request, one that was told with a name keeps it, so that a topic made anew is told from the one asked for.
- A partition that a request names twice is asked for as it was named last (``FetchRequest.fetchData``).
- A session has no more partitions than one request may name. One that grows beyond that is over, as where there is no
  room: FETCH_SESSION_ID_NOT_FOUND makes a client begin anew, and name them all.
- There are never more than ``slots`` sessions, nor more than ``MAX_PARTITIONS`` partitions in all of them. A new one
  takes the place of one that was not used for ``eviction_ms``; else of the least one that it outranks. Followers
  outrank clients, and of two alike the one with more partitions the other; but a session younger than ``eviction_ms``
  gives way to none of its own rank. For want of room for partitions only those give way that were not used for so long,
  and, to a follower, the largest of clients: many small ones of others would have to go for a large one.
- A full fetch of which the caller may not read all is granted none, and so is an empty one: a stranger takes no room.

The rules are those of Kafka 3.9 (``FetchSession.scala``), except for the bounds of partitions. Time is handed in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.segments import LogPosition
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest, ForgottenPartition
from sparklog.protocol.slices import MOST_ELEMENTS
from sparklog.replica.caught_up_state import CaughtUpState
from sparklog.replica.purgatory import Purgatory, StandingOperation
from sparklog.structs import IsolationLevel, TopicPartition

MAX_PARTITIONS = 150_000
"""Some 60 MB, ten times what the followers and consumers of a broker of some thousand partitions have. A search for
cyclic garbage looks at five objects of each.
"""
_LOOKS_A_READ = 40
NO_SESSION = 0
_FULL, _FINAL = 0, -1
_MAX_INT32 = (1 << 31) - 1

_Key = tuple[str | UUID, int]
_Reader = tuple[int, int, IsolationLevel, str]
"""Replica id and epoch, or -1 for a consumer; what it may see; its rack."""
_Rank = tuple[bool, int, int]
"""Followers first, then by size; the id makes it unique."""


class FetchAnswer(NamedTuple):
    """What is to be sent."""

    partitions: list[FetchedPartition]
    session_id: int = NO_SESSION
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0
    """How long the client is to wait, over its quota."""


class Fetch(Protocol):
    """One fetch in hand: what it stands for, and how what was read becomes its answer.

    ``name`` once or more, ``begin``; ``take`` for all but the last that was read, ``answer``. Where others are served
    in between, ``hold`` before and ``release`` after.
    """

    asked: list[FetchPartition]
    """Every partition to read, from ``begin`` on; a topic known by id only has an empty name."""
    rest: Rest
    """Those that need not be read."""

    def name(self, asked: list[FetchPartition], forgotten: list[ForgottenPartition]) -> None:
        """The request says so."""
        ...

    def begin(self) -> Fetch:
        """What is to be served: this one, as a rule. Raises ApiError, a code for the whole request."""
        ...

    def hold(self) -> bool:
        """Let no other request have the session; False if one had it since this one began."""
        ...

    def release(self, *, is_whole: bool) -> None:
        """Others may have the session, unless this request was given up: then it is over."""
        ...

    def again(self) -> None:
        """Time has passed: look anew which partitions are to be read."""
        ...

    def is_behind(self, asked: FetchPartition, high_watermark: int) -> bool:
        """Whether the session's client was last told of another high watermark than this."""
        ...

    def take(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> None:
        """The next of ``asked`` gave so much. ``states``: where that was all, by what to find out whether it still is;
        without any it is not known.
        """
        ...

    def answer(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> FetchAnswer:
        """All that was taken and ``fetched``, which is what the last of ``asked`` gave."""
        ...

    def throttled(self, throttle_ms: int) -> FetchAnswer:
        """In place of ``answer``, and of every ``take``: nothing, and to wait. What was read is to be told later."""
        ...


class Rest:
    """The partitions of a session that need not be read for a request."""

    __slots__ = ("_session", "count", "room")

    def __init__(self, session: FetchSession | None = None, count: int = 0, room: int = 0) -> None:
        self._session = session
        self.count = count
        self.room = room
        """The bytes that they may give together, when they have them."""

    def standing(self, purgatory: Purgatory) -> StandingOperation | None:
        """Where the requests of the session wait under these; None without a session."""
        return None if self._session is None else self._session.standing(purgatory)

    def seen(self, tp: TopicPartition) -> tuple[FetchPartition, LogPosition] | None:
        """What is asked of a partition, and how far it could be seen; None if it is none of these."""
        return None if self._session is None else self._session.seen(tp)

    def moved(self) -> list[TopicPartition]:
        """Those that have moved since."""
        return [] if self._session is None else self._session.moved()


class SessionlessFetch:
    """A fetch that says everything itself."""

    __slots__ = ("_fetched", "_named", "asked", "rest")

    def __init__(self) -> None:
        self.rest = Rest()
        self._named: dict[_Key, FetchPartition] = {}
        self._fetched: list[FetchedPartition] = []
        self.asked: list[FetchPartition] = []

    def name(self, asked: list[FetchPartition], _forgotten: list[ForgottenPartition]) -> None:
        if len(asked) == 1 and not self._named:
            self.asked = asked
            return
        for each in asked:
            self._named[each.topic or each.topic_id, each.partition] = each

    def begin(self) -> Fetch:
        if self._named:
            self.asked = list(self._named.values())
        return self

    def hold(self) -> bool:
        return True

    def release(self, *, is_whole: bool) -> None:
        pass

    def again(self) -> None:
        pass

    def is_behind(self, _asked: FetchPartition, _high_watermark: int) -> bool:
        return False

    def take(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> None:  # noqa: ARG002
        self._fetched += fetched

    def answer(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> FetchAnswer:  # noqa: ARG002
        return FetchAnswer(self._fetched + fetched)

    def throttled(self, throttle_ms: int) -> FetchAnswer:
        return FetchAnswer([], throttle_ms=throttle_ms)


class _Cached:
    """One partition of a session: what is asked of it, and what was last told."""

    __slots__ = ("asked", "caught_up", "high_watermark", "log_start_offset")

    def __init__(
        self, asked: FetchPartition, told: FetchedPartition | None = None, caught_up: CaughtUpState | None = None
    ) -> None:
        self.asked = asked
        self.caught_up = caught_up
        """By what to find out whether that is all there is; None where it may not be."""
        self.high_watermark = -1 if told is None else told.high_watermark
        self.log_start_offset = -1 if told is None else told.log_start_offset

    def ask(self, asked: FetchPartition) -> None:
        """Ask this from now on; a name that was found stays."""
        self.asked = asked._replace(topic=asked.topic or self.asked.topic)
        self.caught_up = None

    def tells(self, fetched: FetchedPartition) -> bool:
        """Whether the answer must hold the partition; what it is told is remembered."""
        failed = fetched.error is not ErrorCode.NONE
        news = (
            failed
            or bool(fetched.records)
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
            or fetched.diverging is not None
            or fetched.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if failed else fetched.high_watermark  # told anew once the error is over
        self.log_start_offset = fetched.log_start_offset
        if not self.asked.topic and fetched.topic:
            self.asked = self.asked._replace(topic=fetched.topic)
        return news


class FetchSession:
    """One session; the order of its partitions is the order in which they are read."""

    __slots__ = (
        "_to_enter",
        "created_ms",
        "epoch",
        "id",
        "is_held",
        "last_used_ms",
        "partitions",
        "privileged",
        "rank",
        "reader",
        "ripe",
        "uses_ids",
        "waiting",
        "watched",
    )

    def __init__(self, session_id: int, partitions: dict[_Key, _Cached], *, privileged: bool, uses_ids: bool) -> None:
        self.id = session_id
        self.partitions = partitions
        self.privileged = privileged
        self.uses_ids = uses_ids
        self.epoch = 1
        self.is_held = False
        self.created_ms = self.last_used_ms = 0
        self.rank: _Rank | None = None
        self.ripe = False
        self.reader: _Reader | None = None
        """For which its partitions were looked at last."""
        self.waiting: StandingOperation | None = None
        self.watched: dict[TopicPartition, _Cached] = {}
        """The partitions under which its requests wait, though they need not be read."""
        self._to_enter: list[TopicPartition] = []
        for cached in partitions.values():
            if cached.caught_up is not None:
                self.watch(cached)

    def update(self, asked: list[FetchPartition], forgotten: list[ForgottenPartition]) -> None:
        """Take over what an incremental fetch names."""
        for each in asked:
            key = _key(each, uses_ids=self.uses_ids)
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _Cached(each)
            else:
                cached.ask(each)
        for gone in forgotten:
            cached = self.partitions.pop(_key(gone, uses_ids=self.uses_ids), None)
            if cached is not None:
                self._unwatch(cached)

    def watch(self, cached: _Cached) -> None:
        """Let requests wait under this partition too, of which the reader was told all."""
        tp = TopicPartition(cached.asked.topic, cached.asked.partition)
        if tp not in self.watched:
            self._to_enter.append(tp)
        self.watched[tp] = cached

    def _unwatch(self, cached: _Cached) -> None:
        tp = TopicPartition(cached.asked.topic, cached.asked.partition)
        if self.watched.get(tp, cached) is not cached:
            return  # another topic bears the name now
        self.watched.pop(tp, None)
        if self.waiting is not None:
            self.waiting.leave(tp)

    def standing(self, purgatory: Purgatory) -> StandingOperation:
        """Where its requests wait, under what is watched."""
        if self.waiting is None:
            self.waiting = StandingOperation(purgatory)
        to_enter, self._to_enter = self._to_enter, []
        for tp in to_enter:
            if tp in self.watched:
                self.waiting.enter(tp)
        return self.waiting

    def close(self) -> None:
        """No request will come any more."""
        if self.waiting is not None:
            self.waiting.close()

    def due(self, reader: _Reader, now_ms: int) -> tuple[list[FetchPartition], int]:
        """What is to be read for a request of this reader, and the bytes that all others may give together."""
        is_same, self.reader = reader == self.reader, reader
        asked, room = [], 0
        for cached in self.partitions.values():
            caught_up = cached.caught_up
            if is_same and caught_up is not None and caught_up.holds_for_request(now_ms):
                room += max(cached.asked.max_bytes, 0)
            else:
                cached.caught_up = None
                asked.append(cached.asked)
        return asked, room

    def due_again(self) -> list[FetchPartition]:
        """What is to be read when a request has waited."""
        return [each.asked for each in self.partitions.values() if each.caught_up is None or not each.caught_up.holds()]

    def moved(self) -> list[TopicPartition]:
        """The partitions that were all told, and have moved since."""
        return [tp for tp, each in self.watched.items() if each.caught_up is not None and not each.caught_up.holds()]

    def seen(self, tp: TopicPartition) -> tuple[FetchPartition, LogPosition] | None:
        """What is asked of a partition that was all told, and how far it could be seen then."""
        cached = self.watched.get(tp)
        return None if cached is None or cached.caught_up is None else (cached.asked, cached.caught_up.bound)

    def is_behind(self, asked: FetchPartition, high_watermark: int) -> bool:
        """Whether another high watermark than this was told last."""
        cached = self.partitions.get(_key(asked, uses_ids=self.uses_ids))
        return cached is not None and cached.high_watermark != high_watermark

    def prune(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None]) -> list[FetchedPartition]:
        """What of ``fetched`` is news; what gave records goes to the end."""
        news = []
        for each, caught_up in zip(fetched, states or [None] * len(fetched), strict=True):
            key = _key(each, uses_ids=self.uses_ids)
            cached = self.partitions[key]
            is_news = cached.tells(each)  # which may tell the name under which it is watched
            cached.caught_up = caught_up
            if caught_up is not None:
                self.watch(cached)
            if is_news:
                news.append(each)
                if each.records:
                    del self.partitions[key]
                    self.partitions[key] = cached
        return news


def _reader_of(message: FetchRequest) -> _Reader:
    return message.replica_id, message.replica_epoch, message.isolation, message.rack_id


def _key(each: FetchPartition | FetchedPartition | ForgottenPartition, *, uses_ids: bool) -> _Key:
    return (each.topic_id if uses_ids else each.topic), each.partition


class IncrementalFetch:
    """A fetch in a session."""

    def __init__(self, sessions: FetchSessions, session: FetchSession, message: FetchRequest, now_ms: int) -> None:
        self._sessions = sessions
        self._session = session
        self._message = message
        self._now_ms = now_ms
        self._epoch = session.epoch
        self._news: list[FetchedPartition] = []
        self.asked: list[FetchPartition] = []
        self.rest = Rest()

    def name(self, asked: list[FetchPartition], forgotten: list[ForgottenPartition]) -> None:
        self._session.update(asked, forgotten)

    def begin(self) -> Fetch:
        if not self._sessions.go_on(self._session, self._now_ms):
            rest = SessionlessFetch()
            rest.name(self._message.partitions, [])
            return rest.begin()
        self.asked, room = self._session.due(_reader_of(self._message), self._now_ms)
        self.rest = Rest(self._session, len(self._session.partitions) - len(self.asked), room)
        return self

    def again(self) -> None:
        self.asked = self._session.due_again()

    @property
    def _is_late(self) -> bool:
        return self._session.epoch != self._epoch

    def hold(self) -> bool:
        if self._is_late:
            return False
        self._session.is_held = True
        return True

    def release(self, *, is_whole: bool) -> None:
        self._session.is_held = False
        if not is_whole:
            self._sessions.end(self._session)

    def take(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> None:
        self._news += self._session.prune(fetched, states)

    def is_behind(self, asked: FetchPartition, high_watermark: int) -> bool:
        return self._session.is_behind(asked, high_watermark)

    def answer(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> FetchAnswer:
        if self._is_late:
            return FetchAnswer([], self._session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.take(fetched, states)
        return FetchAnswer(self._news, self._session.id)

    def throttled(self, throttle_ms: int) -> FetchAnswer:
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if self._is_late else ErrorCode.NONE
        return FetchAnswer([], self._session.id, error, throttle_ms)


class FullFetch(SessionlessFetch):
    """A fetch that says everything itself, and would like to begin a session."""

    def __init__(self, sessions: FetchSessions, message: FetchRequest, now_ms: int, *, uses_ids: bool) -> None:
        super().__init__()
        self._sessions = sessions
        self._now_ms = now_ms
        self._uses_ids = uses_ids
        self._reader = _reader_of(message)
        self._partitions: dict[_Key, _Cached] = {}
        self._is_refused = False

    def name(self, asked: list[FetchPartition], _forgotten: list[ForgottenPartition]) -> None:
        for each in asked:
            self._named[_key(each, uses_ids=self._uses_ids)] = each

    def take(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> None:
        number = len(self._fetched)
        asked = self.asked[number : number + len(fetched)]
        for each, told, caught_up in zip(asked, fetched, states or [None] * len(fetched), strict=True):
            key = _key(each, uses_ids=self._uses_ids)
            self._partitions[key] = _Cached(each._replace(topic=told.topic), told, caught_up)
            if told.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._is_refused = True
        super().take(fetched)

    def answer(self, fetched: list[FetchedPartition], states: Sequence[CaughtUpState | None] = ()) -> FetchAnswer:
        self.take(fetched, states)
        if self._is_refused:
            return FetchAnswer(self._fetched)
        session_id = self._sessions.grant(self._partitions, self._now_ms, self._reader, uses_ids=self._uses_ids)
        return FetchAnswer(self._fetched, session_id)


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

    def size_of(self, message: FetchRequest) -> int:
        """How many partitions the request names, or as many as cost what a look at all costs that it stands for."""
        session = self._by_use.get(message.session_id)
        standing_for = 0 if session is None else len(session.partitions) // _LOOKS_A_READ
        return len(message.partitions) + len(message.forgotten) + standing_for

    def begin(self, message: FetchRequest, now_ms: int, *, uses_ids: bool) -> Fetch:
        """What the request stands for. Raises ApiError, a code for the whole request, if its session is not to be had.

        The client begins with a full fetch again then.
        """
        fetch = self.open(message, now_ms, uses_ids=uses_ids)
        fetch.name(message.partitions, message.forgotten)
        return fetch.begin()

    def open(self, message: FetchRequest, now_ms: int, *, uses_ids: bool) -> Fetch:
        """As ``begin``, before anything is named. Raises as that does."""
        if message.session_epoch not in (_FULL, _FINAL):
            session = self._by_use.get(message.session_id)
            if session is None:
                raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if message.session_epoch != session.epoch or session.is_held:
                raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if uses_ids is not session.uses_ids:
                raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            session.epoch = 1 if session.epoch == _MAX_INT32 else session.epoch + 1
            return IncrementalFetch(self, session, message, now_ms)
        if message.session_id:
            self._remove(self._by_use.get(message.session_id))
        if message.session_epoch == _FINAL:
            return SessionlessFetch()
        return FullFetch(self, message, now_ms, uses_ids=uses_ids)

    def go_on(self, session: FetchSession, now_ms: int) -> bool:
        """A request of the session has named what it had to; False if the session is over, for it is empty.

        Raises ApiError if there is no room for it any more.
        """
        if self._by_use.get(session.id) is not session:  # it gave way to another one meanwhile
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._remove(session)
            return False
        self._touch(session, now_ms)
        has_room = self._make_room(0, now_ms, privileged=session.privileged)
        if not has_room or len(session.partitions) > MOST_ELEMENTS:
            self._remove(session)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return True

    def end(self, session: FetchSession) -> None:
        """The session is over, if it is not already."""
        if self._by_use.get(session.id) is session:
            self._remove(session)

    def grant(self, partitions: dict[_Key, _Cached], now_ms: int, reader: _Reader, *, uses_ids: bool) -> int:
        """The id of a new session, or ``NO_SESSION`` if there is no room for it."""
        size, privileged = len(partitions), reader[0] >= 0
        if not size or not self._make_room(size, now_ms, privileged=privileged):
            return NO_SESSION
        if len(self._by_use) >= self._slots and not self._evict((privileged, size, 0), now_ms):
            return NO_SESSION
        session_id = self._unused_id()
        session = FetchSession(session_id, partitions, privileged=privileged, uses_ids=uses_ids)
        session.created_ms = now_ms
        session.reader = reader
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

    def _make_room(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        """For so many partitions more; False if too few may be sent away for them."""
        while self._partitions + size > MAX_PARTITIONS:
            if not self._evict_unused(now_ms) and not (privileged and self._evict_largest_client()):
                return False
        return True

    def _evict_unused(self, now_ms: int) -> bool:
        oldest = next(iter(self._by_use.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms <= self._eviction_ms:
            return False
        self._remove(oldest)
        return True

    def _evict_largest_client(self) -> bool:
        place = bisect_left(self._yielding_to_followers, (True, 0, 0))
        if not place:
            return False
        self._remove(self._by_use[self._yielding_to_followers[place - 1][2]])
        return True

    def _evict(self, rank: _Rank, now_ms: int) -> bool:
        """Give a session of this rank a place; False if none may be sent away for it."""
        if self._evict_unused(now_ms):
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
            session.close()
