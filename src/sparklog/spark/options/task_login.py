"""How the tasks of a query come to the brokers: as the driver does, or by a delegation token.

With the option ``taskToken`` the driver keeps its credentials for itself. It asks for a token, which stands for the
same user, and sends the tasks that; and it waits until the brokers know the token, for a task may ask any of them. A
token cannot be used to ask for another, so what a task has lasts no longer than the option says.

Invariant: what is pickled for tasks holds the credentials of the driver only where the option is not given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.clock import SystemClock

if TYPE_CHECKING:
    from sparklog.client.admin.admin import DelegationToken
    from sparklog.client.cluster.config import ClientConfig


class TaskLogin:
    """The driver's side. ``lifetime_ms``: how long tokens last; None where tasks come as the driver does."""

    def __init__(self, config: ClientConfig, lifetime_ms: int | None) -> None:
        self._config = config
        self._lifetime_ms = lifetime_ms
        self._clock = SystemClock()
        self._made: ClientConfig | None = None
        self._renew_at_ms = 0

    def client(self) -> ClientConfig:
        """The settings with which tasks that start now come. A token is used again for half of its life.

        Raises what ``Admin.create_delegation_token`` raises.
        """
        if self._lifetime_ms is None:
            return self._config
        now_ms = self._clock.now_ms()
        if self._made is None or now_ms >= self._renew_at_ms:
            token, ends_ms = _issued(self._config, self._lifetime_ms)
            self._made = self._config.by_token(token.token_id, token.password)
            self._renew_at_ms = now_ms + (ends_ms - now_ms) // 2
        return self._made


def _issued(config: ClientConfig, lifetime_ms: int) -> tuple[DelegationToken, int]:
    """A token that all brokers know, and when it ends, in milliseconds since the epoch."""
    from sparklog.client.admin.admin import Admin

    with Admin(config) as admin:
        token = admin.create_delegation_token(max_lifetime_ms=lifetime_ms)
        ends_ms = token.expires_ms
        if ends_ms < token.max_ms:
            ends_ms = admin.renew_delegation_token(token.hmac, lifetime_ms)
        admin.wait_for_delegation_token(token)
    return token, ends_ms
