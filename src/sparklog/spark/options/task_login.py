"""How the tasks of a query come to the brokers: as the driver does, or by a delegation token.

With a token the driver keeps its credentials for itself. It asks for a token, which stands for the same user, and sends
the tasks that; and it waits until the brokers know the token, for a task may ask any of them. A token cannot be used to
ask for another one, nor to renew itself.

Some drivers end before their tasks do: Spark plans a batch query, and each write, in a process that ends when the plan
is made. Their token is good for the lifetime that is asked for, and for no more (``TaskLogin``). Others live as long as
the query: that of a streaming read, and a job. They renew their token while they live (``KeptLogin``), and take
a new one before the brokers refuse to renew the old one any more.

Invariants:

1. What is pickled for tasks holds the credentials of the driver only where no token is asked for.
2. A token that is handed to tasks has half of its time before it still, at least: of what the driver has it renewed
   for, unless brokers cannot be asked to, and of the most that they allow.
3. A token outlasts the driver that renews it by the lifetime that is asked for, at most.
4. A token is ended before its time only when all tasks that were handed it are over: by ``settle``, when the tasks of
   all plans but the last are; by ``close``, when all are.
5. That a token cannot be renewed or ended is a warning, and stops nothing: it ends by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sparklog.clock import Clock, SystemClock
from sparklog.errors import ApiError, ClientClosed, ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin, DelegationToken
    from sparklog.client.cluster.config import ClientConfig

_log = logging.getLogger(__name__)
_GONE = (ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
_AS_LONG_AS_BROKERS_LET = -1
_LEAST_PAUSE_S = 1.0
"""Between two attempts to renew a token."""


class Tokens(Protocol):
    """Where tokens come from. Every method raises SparklogError."""

    def create(self, period_ms: int, most_ms: int) -> DelegationToken:
        """A token that all brokers know, good for ``period_ms``; it can be renewed up to ``most_ms`` in all."""

    def renew(self, token: DelegationToken, period_ms: int) -> None:
        """Let it be good for ``period_ms`` from now on."""

    def end(self, tokens: Collection[DelegationToken]) -> None:
        """Let them be good no more."""


class BrokerTokens:
    """Tokens for the user of these settings."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config

    def create(self, period_ms: int, most_ms: int) -> DelegationToken:
        from sparklog.client.admin.admin import Admin

        with Admin(self._config) as admin:
            token = admin.create_delegation_token(max_lifetime_ms=most_ms)
            try:
                if token.expires_ms != min(token.max_ms, token.issued_ms + period_ms):
                    token = replace(token, expires_ms=admin.renew_delegation_token(token.hmac, period_ms))
                admin.wait_for_delegation_token(token)
            except BaseException:  # nobody is handed it, so nobody else would end it
                with suppress(SparklogError):
                    _end(admin, token)
                raise
        return token

    def renew(self, token: DelegationToken, period_ms: int) -> None:
        from sparklog.client.admin.admin import Admin

        with Admin(self._config) as admin:
            admin.renew_delegation_token(token.hmac, period_ms)

    def end(self, tokens: Collection[DelegationToken]) -> None:
        from sparklog.client.admin.admin import Admin

        with Admin(self._config) as admin:
            for each in tokens:
                _end(admin, each)


def _end(admin: Admin, token: DelegationToken) -> None:
    try:
        admin.expire_delegation_token(token.hmac)
    except ApiError as error:
        if error.code not in _GONE:
            raise


def end_tokens(config: ClientConfig, ids: Collection[str]) -> None:
    """End those of our tokens that have one of these ids. Where that cannot be done, a warning says so."""
    from sparklog.client.admin.admin import Admin

    try:
        with Admin(config) as admin:
            for each in admin.describe_delegation_tokens():
                if each.token_id in ids:
                    _end(admin, each)
    except SparklogError as error:
        _warn_of_unended(error)


def _warn_of_unended(error: SparklogError) -> None:
    _log.warning("delegation tokens of tasks that are over were not ended, they end by themselves: %s", error)


class Login(Protocol):
    """The driver's side."""

    def client(self) -> ClientConfig:
        """The settings with which tasks that start now come to the brokers. Raises SparklogError."""


@dataclass(frozen=True)
class _Issued:
    """A token, and its times, in seconds of the driver's monotonic clock: brokers have clocks of their own."""

    token: DelegationToken
    client: ClientConfig
    expires_s: float
    max_s: float
    renew_s: float
    """When it is to be renewed."""
    worn_s: float
    """From when on it is handed to no further tasks."""

    @property
    def is_final(self) -> bool:
        """Whether brokers would not let it last longer."""
        return self.expires_s >= self.max_s

    @classmethod
    def of(cls, token: DelegationToken, config: ClientConfig, now_s: float) -> _Issued:
        lasts_s, most_s = (token.expires_ms - token.issued_ms) / 1000, (token.max_ms - token.issued_ms) / 1000
        return cls(
            token,
            config.by_token(token.token_id, token.password),
            now_s + lasts_s,
            now_s + most_s,
            now_s + lasts_s / 2,
            now_s + most_s / 2,
        )


class OwnLogin:
    """Tasks come as the driver does."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config

    def client(self) -> ClientConfig:
        return self._config

    def settle(self) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """There is nothing to end."""


class TaskLogin:
    """Of a driver that does not live as long as the tasks. ``lifetime_ms``: how long tokens last. A token is used again
    for half of its life.
    """

    def __init__(
        self, config: ClientConfig, lifetime_ms: int, tokens: Tokens | None = None, clock: Clock | None = None
    ) -> None:
        self._config = config
        self._lifetime_ms = lifetime_ms
        self._tokens = tokens or BrokerTokens(config)
        self._clock = clock or SystemClock()
        self._issued: _Issued | None = None

    def client(self) -> ClientConfig:
        now_s = self._clock.monotonic()
        if self._issued is None or now_s >= self._issued.worn_s:
            token = self._tokens.create(self._lifetime_ms, self._lifetime_ms)
            self._issued = _Issued.of(token, self._config, now_s)
        return self._issued.client


def task_login(config: ClientConfig, lifetime_ms: int | None) -> Login:
    """Of a driver that does not live as long as the tasks. ``lifetime_ms``: of their token; None: they have none."""
    return OwnLogin(config) if lifetime_ms is None else TaskLogin(config, lifetime_ms)


class KeptLogin:
    """Of a driver that lives as long as the query, and renews its token. Close it.

    ``period_ms``: for how long a token is renewed, each time when half of that is over, by a thread. The thread waits
    by ``pause``, which is given seconds and returns whether the login is closed.

    Where it is closed already, ``client`` raises ClientClosed: nobody would end the token.
    """

    def __init__(
        self,
        config: ClientConfig,
        period_ms: int,
        tokens: Tokens | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._config = config
        self._period_ms = period_ms
        self._tokens = tokens or BrokerTokens(config)
        self._clock = clock or SystemClock()
        self._over = threading.Event()
        self._pause = pause or self._over.wait
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._issued: _Issued | None = None
        self._former: list[DelegationToken] = []

    def client(self) -> ClientConfig:
        with self._lock:
            if self._over.is_set():
                raise ClientClosed("the query is over, and its tasks' tokens are ended")
            now_s = self._clock.monotonic()
            self._renew_if_due(now_s)
            if self._issued is None or now_s >= min(self._issued.worn_s, self._issued.expires_s):
                token = self._tokens.create(self._period_ms, _AS_LONG_AS_BROKERS_LET)
                if self._issued is not None:
                    self._former.append(self._issued.token)
                self._issued = _Issued.of(token, self._config, now_s)
            client = self._issued.client
            self._start()
        return client

    def settle(self) -> None:
        """End the tokens that were handed out before the present one; the tasks that had them are over."""
        with self._lock:
            former, self._former = self._former, []
        self._end(former)

    def close(self) -> None:
        """End all tokens; all tasks are over."""
        self._over.set()
        with self._lock:
            held = [*self._former, *([] if self._issued is None else [self._issued.token])]
            self._former, self._issued = [], None
        self._end(held)

    def tend(self) -> float:
        """Renew the token if that is due; in how many seconds to do so again."""
        with self._lock:
            now_s = self._clock.monotonic()
            self._renew_if_due(now_s)
            issued = self._issued
            wait_s = self._period_ms / 2000 if issued is None or issued.is_final else issued.renew_s - now_s
            return max(wait_s, _LEAST_PAUSE_S)

    def _renew_if_due(self, now_s: float) -> None:
        issued = self._issued
        if issued is not None and not issued.is_final and issued.renew_s <= now_s < issued.expires_s:
            self._issued = self._renewed(issued, now_s)

    def _renewed(self, issued: _Issued, now_s: float) -> _Issued | None:
        """The token as it is after the attempt; None where it is gone, so that the next tasks have another one."""
        try:
            self._tokens.renew(issued.token, self._period_ms)
        except SparklogError as error:
            _log.warning("delegation token %s of tasks is not renewed: %s", issued.token.token_id, error)
            if isinstance(error, ApiError) and error.code in _GONE:
                return None
            return replace(issued, renew_s=now_s + max((issued.expires_s - now_s) / 4, _LEAST_PAUSE_S))
        lasts_s = self._period_ms / 1000
        return replace(issued, expires_s=min(now_s + lasts_s, issued.max_s), renew_s=now_s + lasts_s / 2)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="renewal of the tasks' token", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._pause(self.tend()):
            pass

    def _end(self, tokens: Collection[DelegationToken]) -> None:
        if tokens:
            try:
                self._tokens.end(tokens)
            except SparklogError as error:
                _warn_of_unended(error)


def kept_login(config: ClientConfig, period_ms: int | None, clock: Clock | None = None) -> OwnLogin | KeptLogin:
    """Of a driver that lives as long as the query. ``period_ms``: of the token's renewals; None: tasks have none."""
    return OwnLogin(config) if period_ms is None else KeptLogin(config, period_ms, clock=clock)
