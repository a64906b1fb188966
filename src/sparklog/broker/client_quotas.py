"""What clients use of this broker, and how long they wait when that is more than their quota.

With each answer what its client has used is counted; over the quota the answer tells how long to wait, and nothing more
is read from the connection for that time. Where several quotas are exceeded the longest wait counts. With no quota set
nothing is counted.

- A Produce counts with its size. One without an answer is held by the bytes alone; its time counts all the same.
- Segments that are adopted count as if their batches had been produced, when that is answered.
- A Fetch of a consumer counts with the size of its answer. What is too much is not given: the answer has no data, and
  does not count. A client that has been given nothing for all windows gets an answer of any size, so that a batch
  that is larger than the quota of all windows keeps no consumer from going on. (In Kafka it does.)
- A lease of segment files counts with the bytes that it lets its holder read, which are cut to what may be had at once.
  A client that has to wait gets none.
- The time that counts is that which the broker's one loop has spent on the connection, up to the turn before the one in
  which the answer is made, and on what a request does after it has waited. The rest counts when the connection ends.
- A change of topics counts with its partitions (``quota/mutations.py``).

What brokers ask each other does not count, nor a follower's Fetch. A caller that may not be a broker (ClusterAction)
and asks the same is a client: or a request that is refused would make what was spent before it forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast

from sparklog.clock import Clock, monotonic_ms
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.net.limits import by_address
from sparklog.net.tasks import retrieve
from sparklog.protocol.api_key import ApiKey
from sparklog.quota.entity import DEFAULT, Entity, IpEntity, Name
from sparklog.quota.keys import CONNECTION_CREATION_RATE, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, quotas_in
from sparklog.quota.mutations import Mutations
from sparklog.quota.quotas import Quotas, QuotaWindows
from sparklog.quota.rate import Windows
from sparklog.security.access import CLUSTER, AllowEverything, Authorizer, Operation
from sparklog.security.address import plain_address
from sparklog.security.caller import Caller
from sparklog.zk.entities import CLIENTS, IPS, USERS, parts

T = TypeVar("T")
_logger = logging.getLogger(__name__)

BETWEEN_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.PROBE_BROKER,
        ApiKey.GET_REPLICA_LOG_INFO,
    }
)
"""What only brokers ask."""
_ADDED_BY_BROKERS = 4
"""From this version on AddPartitionsToTxn is asked by brokers, for several transactions at once."""
_MAX_INT32 = (1 << 31) - 1
_PERCENT = 100.0
_DEFAULT_CLIENT_ID = Entity(client_id=DEFAULT)
_ENDLESS = (1 << 63) - 1


def entity_at(path: str) -> Entity | IpEntity:
    """Whose settings are at a path below ``/config``. Raises ConfigError if those of no such entity are."""
    named: dict[str, Name] = {kind: DEFAULT if name is None else name for kind, name in parts(path)}
    if IPS in named:
        return IpEntity(named[IPS])
    return Entity(named.get(USERS), named.get(CLIENTS))


class Changes:
    """What one request may change of topics."""

    def __init__(self, mutations: Mutations | None, now_ms: Callable[[], int]) -> None:
        self._mutations = mutations
        self._now_ms = now_ms

    def take(self, partitions: int) -> None:
        """So many are to be made or deleted. Raises ApiError(THROTTLING_QUOTA_EXCEEDED) where they may not be."""
        if self._mutations is not None and not self._mutations.take(partitions, self._now_ms()):
            wait_ms = self.throttle_ms
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"too many partitions were changed; wait {wait_ms} ms")

    @property
    def throttle_ms(self) -> int:
        """How long the client is to wait, from now on."""
        return 0 if self._mutations is None else self._mutations.throttle_ms(self._now_ms())


class ClientQuotas:
    """Asked with each answer, if ``is_on``. All of it lives on the broker's loop."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.is_on = False
        """Whether any client has a quota. While it is false nothing else need be asked."""
        self.authorizer: Authorizer = AllowEverything()
        """Says who may be a broker."""
        self.quotas = Quotas(_windows_of(config))
        self.throttled = 0
        """Answers that asked their clients to wait."""
        self.throttled_ms = 0
        """How long, all together."""
        self._clock = clock
        self._counts_time = False
        self._holds_producers = self._holds_consumers = False
        self._times_on = 0
        self._addresses: dict[str, list[str]] = {}  # of hosts that quotas are set for by their names
        self._looking: dict[str, asyncio.Future[dict[str, int]]] = {}  # for those of the hosts, for what is set last
        self._static = {
            name: float(rate)
            for name, rate in (
                (PRODUCER_BYTE_RATE, config.quota_producer_default),
                (CONSUMER_BYTE_RATE, config.quota_consumer_default),
            )
            if rate < _ENDLESS
        }
        self._set(_DEFAULT_CLIENT_ID, {})

    # Settings

    def take_over(self, path: str, properties: Mapping[str, str]) -> None:
        """These are the settings of the entity at ``path`` now, in force with the next answer."""
        try:
            entity = entity_at(path)
            bounds = quotas_in(entity, properties)
        except ConfigError as error:
            _logger.error("the quotas of %s stay as they are: %s", path, error)
            return
        if isinstance(entity, IpEntity):
            self._set_address(entity.ip, bounds.get(CONNECTION_CREATION_RATE))
        else:
            self._set(entity, bounds)

    def _set(self, entity: Entity, bounds: dict[str, float]) -> None:
        self.quotas.set(entity, self._static | bounds if entity == _DEFAULT_CLIENT_ID else bounds)
        self.is_on = self.quotas.is_set
        self._holds_producers, self._holds_consumers = self.quotas.produce.is_set, self.quotas.fetch.is_set
        if self.quotas.request.is_set and not self._counts_time:
            self._times_on += 1
        self._counts_time = self.quotas.request.is_set

    def _set_address(self, ip: Name, rate: float | None) -> None:
        address = ip if ip is DEFAULT else plain_address(ip)
        if address is not None:
            self.quotas.connections.set(address, rate)
            return
        for known in self._addresses.pop(str(ip), ()):
            self.quotas.connections.set(known, None)
        self._looking.pop(str(ip), None)
        if rate is not None:
            looking = self._looking[str(ip)] = asyncio.get_running_loop().run_in_executor(
                None, by_address, {str(ip): 0}, CONNECTION_CREATION_RATE
            )
            looking.add_done_callback(partial(self._on_addresses, str(ip), rate))

    def _on_addresses(self, host: str, rate: float, looked_up: asyncio.Future[dict[str, int]]) -> None:
        if self._looking.get(host) is not looked_up:  # another rate is set by now, or none
            retrieve(looked_up)
            return
        del self._looking[host]
        if looked_up.cancelled():
            return
        if (error := looked_up.exception()) is not None:
            _logger.error("no rate of connections is set for %s: %s", host, error)
            return
        self._addresses[host] = [*looked_up.result()]
        for address in self._addresses[host]:
            self.quotas.connections.set(address, rate)

    # Answers

    def charge(self, api: ApiKey, version: int, caller: Caller, client_id: str | None, size: int, answer: Any) -> int:
        """The request of ``size`` bytes is answered; for how many milliseconds its client is to wait, and is muted.

        ``answer`` is None where there is none.
        """
        if api is ApiKey.FETCH:
            return cast("int", answer.throttle_ms)  # it was charged for what it would have given
        of_brokers = api in BETWEEN_BROKERS or (api is ApiKey.ADD_PARTITIONS_TO_TXN and version >= _ADDED_BY_BROKERS)
        if of_brokers and self.follow(caller):
            return 0
        now_ms, user, name = self._now_ms(), caller.principal.name, client_id or ""
        wait_ms = 0
        if api is ApiKey.PRODUCE and self._holds_producers:
            wait_ms = self.quotas.produce.record(user, name, size, now_ms)
        if answer is None:
            self._charge_time(caller, name, now_ms)
        else:
            told_ms = getattr(answer, "throttle_time_ms", None) or 0  # of changes, or of a lease
            wait_ms = max(wait_ms, told_ms, self._charge_time(caller, name, now_ms))
        self._mute(caller, wait_ms)
        return wait_ms

    def is_broker(self, caller: Caller) -> bool:
        """Whether the caller may ask what brokers ask."""
        return self.authorizer.allows_quietly(caller, Operation.CLUSTER_ACTION, CLUSTER)

    def charge_fetch(self, caller: Caller, client_id: str | None, size: int) -> int:
        """A consumer is to be given so many bytes: for how long it is to wait instead, and is muted; 0: they count."""
        now_ms, user, name = self._now_ms(), caller.principal.name, client_id or ""
        time_ms, bytes_ms = self._charge_time(caller, name, now_ms), 0
        if self._holds_consumers:
            bytes_ms = self.quotas.fetch.take(user, name, size, now_ms)
            if time_ms and not bytes_ms:
                self.quotas.fetch.take_back(user, name, size, now_ms)
        wait_ms = max(time_ms, bytes_ms)
        self._mute(caller, wait_ms)
        return wait_ms

    def most_to_fetch(self, caller: Caller, client_id: str | None) -> int:
        """The bytes that a consumer may be given at once, if it has been given none."""
        if not self._holds_consumers:
            return _MAX_INT32
        most = self.quotas.fetch.most_at_once(caller.principal.name, client_id or "", self._now_ms())
        return int(min(most, _MAX_INT32))

    def room_for_lease(self, caller: Caller, client_id: str | None) -> tuple[float, int]:
        """How many bytes may be leased at once, and for how many milliseconds nothing may."""
        if not self._holds_consumers:
            return float("inf"), 0
        now_ms, user, name = self._now_ms(), caller.principal.name, client_id or ""
        wait_ms = self.quotas.fetch.record(user, name, 0, now_ms)
        return self.quotas.fetch.most_at_once(user, name, now_ms), wait_ms

    def charge_lease(self, caller: Caller, client_id: str | None, size: int) -> int:
        """So many bytes are leased; for how many milliseconds the next lease is to wait."""
        if not self._holds_consumers:
            return 0
        return self.quotas.fetch.record(caller.principal.name, client_id or "", size, self._now_ms())

    def count_produced(self, caller: Caller, client_id: str | None, size: int) -> int:
        """So many bytes came into a log without a Produce; for how many milliseconds the client is to wait."""
        if not self._holds_producers:
            return 0
        return self.quotas.produce.record(caller.principal.name, client_id or "", size, self._now_ms())

    def changes(self, caller: Caller, client_id: str | None, *, is_strict: bool) -> Changes:
        """What a request may change of topics. ``is_strict``: its client knows THROTTLING_QUOTA_EXCEEDED."""
        if not self.quotas.mutations.is_set:
            return Changes(None, self._now_ms)
        user, name = caller.principal.name, client_id or ""
        return Changes(self.quotas.mutations.begin(user, name, self._now_ms(), is_strict=is_strict), self._now_ms)

    def _now_ms(self) -> int:
        return monotonic_ms(self._clock)

    # The loop's time

    @property
    def counts_time(self) -> bool:
        """Whether anybody has a quota of the loop's time."""
        return self._counts_time

    def follow(self, caller: Caller) -> bool:
        """A follower fetches, or another broker asks what only brokers do: whether it is one, and does not count."""
        is_broker = self.is_broker(caller)
        if is_broker:
            self._forgive(caller)
            caller.client_id = None
        return is_broker

    def begin(self, caller: Caller) -> None:
        """It has connected: what is spent on it counts from the first request on."""
        if self._counts_time:
            self._forgive(caller)

    def settle(self, caller: Caller) -> None:
        """It has hung up: what was spent on it since its last answer counts, with no answer to wait after.

        Its next connection does. Or whoever connects anew for each request would use what he likes.
        """
        if self._counts_time and caller.client_id is not None:
            self._charge_time(caller, caller.client_id, self._now_ms())

    def _forgive(self, caller: Caller) -> None:
        """What the loop has spent on the connection since the last answer does not count."""
        caller.charged = (self._times_on, caller.busy_s)

    def _charge_time(self, caller: Caller, client_id: str, now_ms: int) -> int:
        if not self._counts_time:
            return 0
        times_on, charged_s = caller.charged
        spent_s = caller.busy_s - charged_s if times_on == self._times_on else 0.0
        self._forgive(caller)
        return self.quotas.request.record(caller.principal.name, client_id, spent_s * _PERCENT, now_ms)

    def _mute(self, caller: Caller, wait_ms: int) -> None:
        if wait_ms:
            self.throttled += 1
            self.throttled_ms += wait_ms
            caller.mute(wait_ms / 1000)


@types.coroutine
def metered(work: Coroutine[Any, Any, T], caller: Caller, time: Callable[[], float]) -> Generator[Any, Any, T]:
    """To be awaited in place of ``work``: what it does after it has waited is counted as the caller's time.

    What it does before is part of the turn in which it is begun.
    """
    resume, given, is_begun = work.send, None, False
    while True:
        began = time()
        try:
            awaited = resume(given)
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            if is_begun:
                caller.busy_s += time() - began
            is_begun = True
        try:
            given, resume = (yield awaited), work.send
        except BaseException as error:  # it is the work's to deal with
            given, resume = error, cast("Any", work.throw)


def _windows_of(config: BrokerConfig) -> QuotaWindows:
    return QuotaWindows(
        Windows(config.quota_window_num, 1000 * config.quota_window_size_seconds),
        Windows(config.controller_quota_window_num, 1000 * config.controller_quota_window_size_seconds),
    )
