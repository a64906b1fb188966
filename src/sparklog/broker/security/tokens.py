"""The delegation tokens of the cluster, as this broker knows them: read from ZooKeeper at the start, followed since.

An authentication is answered from memory. Every broker takes over the tokens that notifications name, or reads all
tokens again (``broker.following``). Until that has succeeded, what was known last holds.

What is asked of a token, and is changed, is judged by what ZooKeeper holds at that moment; a change that was made here
is in force here before its request is answered. A token that is to be renewed, and that this broker has not heard of
yet, is looked for. A token that cannot be read lets nobody in, and the log names it.

A token that has ended lets nobody in from that millisecond on. Its znode is removed later, by the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from uuid import uuid4

from sparklog.broker.following import Following, NamedChanges, RunZk
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.security.audit import AuditLog
from sparklog.security.delegation.key import TokenKey, trace_of
from sparklog.security.delegation.token import DelegationToken, TokenRules, has_ended
from sparklog.security.principal import Principal
from sparklog.security.sasl.scram import TokenOwner
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential
from sparklog.structs import uuid_to_text
from sparklog.zk.client import ZkClient
from sparklog.zk.tokens import TokenStore

_logger = logging.getLogger(__name__)

Rule = Callable[[DelegationToken, Principal, int, int], DelegationToken | None]
"""``TokenRules.renewed`` or ``TokenRules.ended``."""


def configured(config: BrokerConfig, zk: ZkClient, run_zk: RunZk, clock: Clock) -> DelegationTokens | None:
    """The tokens; None where the broker has no key, and there are none."""
    if not config.delegation_token_secret_key:
        return None
    rules = TokenRules(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)
    return DelegationTokens(TokenKey(config.delegation_token_secret_key), rules, TokenStore(zk), run_zk, clock)


class DelegationTokens:
    """``find`` and ``stands`` answer from memory."""

    def __init__(self, key: TokenKey, rules: TokenRules, store: TokenStore, run_zk: RunZk, clock: Clock) -> None:
        self.key = key
        self.rules = rules
        self.audit = AuditLog(clock.monotonic)
        self._store = store
        self._run_zk = run_zk
        self._clock = clock
        self._following = Following(self._catch_up, "delegation tokens", _logger)
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """By the traces of their HMACs."""
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        """Those that were needed yet, by id and mechanism."""
        self._changes = NamedChanges((store.changes,), self._take_over, run_zk, self._following)
        self._one_at_a_time = asyncio.Lock()
        self._catching_up = asyncio.Lock()

    async def load(self) -> None:
        """Read all tokens; what changes after this call began will be followed. Raises CoordinationError."""
        await self._run_zk(self._store.ensure_tree)
        await self._changes.read_all(self._read_all)

    def follow(self) -> None:
        """Take over what changes, from now on."""
        self._following.start()

    async def close(self) -> None:
        await self._following.close()

    @property
    def all(self) -> Collection[DelegationToken]:
        """Those that are known here, whether they have ended or not."""
        return tuple(self._tokens.values())

    def find(self, mechanism: str, token_id: str) -> TokenOwner | None:
        """Whose the token is, if it stands for anybody now (``TokenLookup``)."""
        token = self._tokens.get(token_id)
        if token is None or has_ended(token, self._clock.now_ms()):
            return None
        own = self._credentials.setdefault(token_id, {})
        if mechanism not in own:
            own[mechanism] = self.key.credential_of(token_id, SCRAM_MECHANISMS[mechanism])
        return TokenOwner(token.owner, own[mechanism], token.ends_ms)

    def stands(self, token_id: str) -> bool:
        """Whether the token stands for its owner still."""
        token = self._tokens.get(token_id)
        return token is not None and not has_ended(token, self._clock.now_ms())

    async def create(
        self, owner: Principal, requester: Principal, renewers: Collection[Principal], lifetime_ms: int
    ) -> DelegationToken:
        """Issue a token. Raises ApiError(INVALID_REQUEST) for too many renewers, and CoordinationError."""
        token = self.rules.issued(_new_id(), owner, requester, renewers, lifetime_ms, self._clock.now_ms())
        await self._change(token.id, lambda _: token)
        return token

    async def change(
        self, shown: bytes, by: Principal, rule: Rule, period_ms: int
    ) -> tuple[DelegationToken, DelegationToken | None]:
        """Renew or end the token whose HMAC is shown; as it was, and as it is: None where it is gone.

        Raises ApiError: DELEGATION_TOKEN_NOT_FOUND, and what the rule raises; MalformedZnode and CoordinationError.
        """
        token_id = await self._shown(shown)
        judged: list[DelegationToken] = []

        def judge(found: DelegationToken | None) -> DelegationToken | None:
            if found is None:
                raise _not_found()
            judged.append(found)
            return rule(found, by, period_ms, self._clock.now_ms())

        after = await self._change(token_id, judge)
        return judged[-1], after

    async def remove_ended(self) -> None:
        """Remove the znodes of tokens that have ended. For one broker, the controller."""
        now_ms = self._clock.now_ms()

        def unless_ended(found: DelegationToken | None) -> DelegationToken | None:
            return None if found is None or has_ended(found, now_ms) else found

        for token in self.all:
            if has_ended(token, now_ms) and await self._change(token.id, unless_ended) is None:
                _logger.info("removed %s, which has ended", token)

    async def _shown(self, shown: bytes) -> str:
        """The id of the token of this HMAC. Raises ApiError(DELEGATION_TOKEN_NOT_FOUND)."""
        trace = trace_of(shown)
        if trace not in self._ids:
            await self._catch_up()
        token_id = self._ids.get(trace)
        if token_id is None or not self.key.is_hmac_of(shown, token_id):
            raise _not_found()
        return token_id

    async def _change(
        self, token_id: str, change: Callable[[DelegationToken | None], DelegationToken | None]
    ) -> DelegationToken | None:
        after: DelegationToken | None = await self._run_zk(self._store.change, token_id, change)
        await self._take_over(token_id)
        return after

    async def _catch_up(self) -> None:
        async with self._catching_up:
            await self._changes.catch_up(self._read_all)

    async def _read_all(self) -> None:
        async with self._one_at_a_time:
            found = await self._run_zk(self._store.read_all)
            for error in found.malformed.values():
                _logger.error("nobody comes by a delegation token that cannot be read: %s", error)
            for token_id in self._tokens.keys() - found.tokens.keys():
                self._forget(token_id)
            for token in found.tokens.values():
                self._put(token)

    async def _take_over(self, token_id: str) -> None:
        async with self._one_at_a_time:
            try:
                token = await self._run_zk(self._store.read, token_id)
            except MalformedZnode as error:
                _logger.error("nobody comes by a delegation token that cannot be read: %s", error)
                token = None
            if token is None:
                self._forget(token_id)
            else:
                self._put(token)

    def _put(self, token: DelegationToken) -> None:
        self._tokens[token.id] = token
        self._ids[trace_of(self.key.hmac_of(token.id))] = token.id

    def _forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._credentials.pop(token_id, None)
        self._ids.pop(trace_of(self.key.hmac_of(token_id)), None)


def _new_id() -> str:
    """As Kafka's, but none that a command would take for an option."""
    while (text := uuid_to_text(uuid4())).startswith("-"):
        pass
    return text


def _not_found() -> ApiError:
    return ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no token with this HMAC")
