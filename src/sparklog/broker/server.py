"""One broker: assembly, and the order of starting and stopping.

Start: take the port, reach ZooKeeper, claim and open the log directories, listen, register, stand for controller.
Requests of controllers are held until the epoch of the registration is known (``fence``).
Stop: take no more requests, answer those in hand (waiting fetches with what there is, members of groups with
NOT_COORDINATOR) for ``_GRACE_S`` at most, leave ZooKeeper, hang up, flush and close the logs, leave the marker of a
clean stop. ``hurry`` cuts the waiting short.
A start that fails is followed by the steps of a stop for which it has made something. Each step is taken, also where
one before it has failed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from enum import IntEnum, auto
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import BrokerContext
from sparklog.broker.coordinator_log import CoordinatorLog
from sparklog.broker.dispatch import Dispatcher
from sparklog.broker.fence import ControllerFence
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.first_registry import FirstRegistry
from sparklog.broker.group_topics import GroupTopics
from sparklog.broker.leases import Leases
from sparklog.broker.listening import ListeningEnds, security_between_brokers
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.predecessor import SessionFiles
from sparklog.broker.preparation import Preparation
from sparklog.broker.registration import Registration
from sparklog.broker.registry import offered
from sparklog.broker.replication.departure import hand_over
from sparklog.broker.replication.fetchers import Fetchers
from sparklog.broker.replication.isr_changes import IsrChanges
from sparklog.broker.retention import RetentionRounds
from sparklog.broker.security import acls, tokens
from sparklog.broker.security.authenticating import Gates
from sparklog.broker.settings import Settings
from sparklog.broker.strays import why_stray
from sparklog.broker.topics import TopicMaker
from sparklog.broker.txn.coordinators import TransactionCoordinators
from sparklog.broker.txn.entry import TransactionEntry
from sparklog.broker.txn.markers import TransactionMarkers
from sparklog.broker.txn.producer_ids import ProducerIds
from sparklog.clock import Clock, SystemClock
from sparklog.config.broker import BrokerConfig, parse_overrides
from sparklog.config.listeners import Listener, unless_plain
from sparklog.config.protocol_version import parse_protocol_version
from sparklog.controller.runtime import Controller
from sparklog.controller.witnesses import Witnesses
from sparklog.errors import ApiError, ConfigError, CoordinationError, ErrorCode, LogDirFailed, MalformedZnode
from sparklog.group.runtime import GroupCoordinator
from sparklog.log.directories.clean_stop import unbroken_since
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.privacy import require_private
from sparklog.log.loader import Knowledge
from sparklog.net.limits import Limits, by_address
from sparklog.net.peers import Peers
from sparklog.net.request_meter import RequestMeter
from sparklog.net.server import SocketServer
from sparklog.net.vigil import Looks
from sparklog.protocol.slices import Steps
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.adopting import SegmentAdopter
from sparklog.replica.cleaning import LogCleaner
from sparklog.replica.cleaning_grants import CleaningGrants
from sparklog.replica.erasing import LogEraser
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.connecting import ConnectionSecurity
from sparklog.security.principal_builder import principal_builder
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.zk.holding import HoldingClient
from sparklog.zk.notifications import config_changes
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_READY_TIMEOUT = 30.0
_GRACE_S = 5.0
_HAND_OVER_S = 10.0
_GRANTS_INTERVAL_MS = 1000
_CERTIFICATES_INTERVAL_MS = 3_000
_REPORT_AGAIN_S = 1.0
_SILENCE_INTERVAL_MS = 30_000
T = TypeVar("T")


class _Step(IntEnum):
    """What a stop does, in this order."""

    LEADERSHIP = auto()
    FIRST_REGISTRY = auto()
    REGISTRATION = auto()
    REQUESTS = auto()
    CONTROLLER = auto()
    FETCHERS = auto()
    ISR_CHANGES = auto()
    GRANTS = auto()
    ERASER = auto()
    ADOPTER = auto()
    CLEANER = auto()
    FUTURES = auto()
    SETTINGS = auto()
    ACLS = auto()
    TOKENS = auto()
    ZOOKEEPER = auto()
    CONNECTIONS = auto()
    GATES = auto()
    TRANSACTIONS = auto()
    PEERS = auto()
    LOOKS = auto()
    COORDINATORS = auto()
    PREPARATION = auto()
    ZOOKEEPER_THREAD = auto()
    DISK_THREAD = auto()  # nothing is written behind the back of the last checkpoint
    LOGS = auto()
    SESSION_FILES = auto()  # last: a process that gets their locks may take this one for dead


class Broker:
    """Start it, wait for ``stopped``, stop it; all on one event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._zk_thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._zk_timeout = config.zookeeper_session_timeout_ms / 1000
        self._stopping = self._is_assembled = self._is_started = False
        self._quotas = ClientQuotas(config, self._clock)
        self._steps: dict[_Step, Callable[[], object]] = {
            _Step.ZOOKEEPER_THREAD: self._zk_thread.shutdown,
            _Step.DISK_THREAD: self._disk_thread.shutdown,
        }
        self._registration: Registration | None = None
        self.zookeeper_meter = RequestMeter("ZooKeeper", 1)
        """How long what was asked of ZooKeeper took, with its wait for what was asked before."""
        self._limits_asked = 0
        self._chores: list[asyncio.Task[None]] = []
        self.failure: asyncio.Future[BaseException] = self._loop.create_future()
        """Set when the broker cannot go on."""
        self._hurry = asyncio.Event()
        self._gates: Gates
        self._security: ConnectionSecurity
        self._controller: Controller
        self._context: BrokerContext
        self._dispatch: Dispatcher
        self.listeners: tuple[Listener, ...]
        """Where it listens."""

    async def run_zk(self, call: Callable[..., T], *args: object) -> T:
        """Run a blocking ZooKeeper call on the thread that is kept for them, in order.

        Until the broker registers, which is tried again by itself, a connection that breaks delays the call.
        """
        ask = self._zk.lasting if self._registration is None else self._zk.guarded
        began = self._clock.monotonic()
        try:
            return await self._loop.run_in_executor(self._zk_thread, lambda: ask(call, *args))
        finally:
            self.zookeeper_meter.answer(self._clock.monotonic() - began)

    async def _ask_zk(self, call: Callable[..., T], *args: object) -> T:
        """``run_zk`` for an API handler: a silent ZooKeeper becomes what a client is told, and tries again;
        what it holds and should not is no reason to."""
        try:
            return await self.run_zk(call, *args)
        except MalformedZnode as error:  # asking again does not help
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except CoordinationError as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error

    def _run_disk(self, call: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run a call that waits for the disk on the thread that is kept for it, in order."""
        return self._loop.run_in_executor(self._disk_thread, call, *args)

    async def start(self) -> None:
        """Returns when clients are served and the controller knows this broker.

        Raises ConfigError, CoordinationError or LogDirFailed with what to do about it; nothing is left behind then.
        """
        try:
            await self._start()
        except BaseException:
            try:
                await self.stop()
            except Exception:
                _logger.exception("the start failed, and stopping after it")
            raise

    async def _start(self) -> None:
        config = self._config
        self._server = self._listen(config)
        self._steps[_Step.CONNECTIONS] = self._server.close
        self._zk = await self._loop.run_in_executor(self._zk_thread, self._connect_zookeeper)
        self._steps[_Step.ZOOKEEPER] = self._close_zookeeper
        await self.run_zk(self._zk.ensure_tree)
        cluster_id = await self.run_zk(self._zk.cluster_id)
        self._settings = Settings(config, self._zk, config_changes(self._zk), self.run_zk)
        self._steps[_Step.SETTINGS] = self._settings.close
        await self._settings.load()
        self._acls = acls.configured(config, self._zk, self.run_zk, self._clock)
        if self._acls is not None:
            self._quotas.authorizer = self._acls.authorizer
            self._steps[_Step.ACLS] = self._acls.close
            await self._acls.load()
        self._tokens = tokens.configured(config, self._zk, self.run_zk, self._clock)
        if self._tokens is not None:
            self._steps[_Step.TOKENS] = self._tokens.close
            await self._tokens.load()
        self._gates.tokens = self._tokens
        self._logs = LogManager(
            [Path(each) for each in config.log_dirs],
            self._settings.topic_defaults,
            self._clock,
            self._disk_thread,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            defaults=Knowledge(producer_expiration_ms=self._settings.layers.in_force.producer_id_expiration_ms),
        )
        self._steps[_Step.LOGS] = self._logs.close
        if config.authorizer_class_name:
            require_private(map(Path, config.log_dirs))
        self._logs.own(cluster_id, config.broker_id)
        self._logs.unbroken_since = unbroken_since([Path(each) for each in config.log_dirs])
        await self._load_logs()
        registration = self._registration = self._make_registration()
        self._steps[_Step.REGISTRATION] = registration.close
        self._assemble(cluster_id)
        self._settings.tell_of_entities(self._gates.credentials.take_over)
        self._server.start()
        # the controller does not come by a certificate that has expired, and its news is waited for below
        self._begin(_CERTIFICATES_INTERVAL_MS, self._ends.look_at_certificates)
        self._settings.tell_of_entities(self._quotas.take_over)
        self._settings.follow(self._context.replicas, self._take_over, self._controller.settings_changed)
        if self._acls is not None:
            self._acls.follow()
        if self._tokens is not None:
            self._tokens.follow()
        await registration.register()
        self._logs.unbroken_since = registration.unbroken_since
        registration.follow(self._controller.on_session_expired, self._fail)
        if config.first_registry:
            self._keep_first_registry(config)
        self._controller.start()
        metadata = self._context.metadata
        if not await metadata.wait_for(lambda: metadata.knows_broker(config.broker_id), _READY_TIMEOUT):
            raise CoordinationError(
                f"no controller took notice of broker {config.broker_id}; see the other brokers' logs"
            )
        self._start_chores()
        self._is_started = True

    def _listen(self, config: BrokerConfig) -> SocketServer:
        server = SocketServer(
            self._loop,
            lambda *asked: self._dispatch(*asked),
            _limits_of(config),
            self._quotas.quotas.connections,
            self._quotas,
        )
        warnings = RateLimitedLogger(_logger, self._clock.monotonic)
        builder = principal_builder(config.principal_builder_class)
        self._gates = Gates(builder, self._clock, lambda text: warnings.warn("authentication", text))
        self._steps[_Step.GATES] = self._gates.close
        self._security = security_between_brokers(config, self._clock)
        self._ends = ListeningEnds(config, server, self._gates.of_listener, builder, self._security)
        self.listeners = self._ends.bound
        return server

    def _take_over(self, config: BrokerConfig) -> None:
        """Put the broker's own settings in force, as they are now."""
        replicas = self._context.replicas
        replicas.leader_throttle.limit = config.leader_replication_throttled_rate
        replicas.follower_throttle.limit = config.follower_replication_throttled_rate
        replicas.futures.rate.bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
        self._context.cleaner.configure(config)
        self._limit_connections(config)

    def _limit_connections(self, config: BrokerConfig) -> None:
        """Put the limits in force as soon as the hosts that they name are looked up; the newest settings count."""
        self._limits_asked += 1
        self._context.in_background(self._look_up_limits(config, self._limits_asked), "looking up connection limits")

    async def _look_up_limits(self, config: BrokerConfig, asked: int) -> None:
        try:
            limits = await self._loop.run_in_executor(None, _limits_of, config)
        except ConfigError as error:
            _logger.error("the limits on connections stay as they are: %s", error)
            return
        if asked == self._limits_asked and limits != self._server.limits:
            self._server.limits = limits

    def _keep_first_registry(self, config: BrokerConfig) -> None:
        kept = FirstRegistry(config.first_registry, config.broker_id, self._zk, self.run_zk, self._context.metadata)
        self._steps[_Step.FIRST_REGISTRY] = kept.close
        kept.follow()

    def _connect_zookeeper(self) -> HoldingClient:
        return HoldingClient(
            self._config.zookeeper_connect,
            session_timeout=self._zk_timeout,
            on_session=self._hear_session,
            between_brokers=self._config.ends.between_brokers,
            security=self._config.zookeeper_security,
        )

    def _close_zookeeper(self) -> Awaitable[None]:
        """On another thread than the one of its calls, for one of them may wait for ZooKeeper."""
        return self._loop.run_in_executor(None, self._zk.close)

    def _hear_session(self, event: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_session, event)

    def _on_session(self, event: str) -> None:
        if not self._stopping and self._registration is not None:
            self._registration.on_session(event)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    async def _load_logs(self) -> None:
        topics = await self.run_zk(self._zk.topics.names)
        configs = {topic: await self._settings.topic(topic) for topic in topics}
        await self._loop.run_in_executor(None, self._logs.load, configs, self._why_stray)
        self._logs.on_failure = self._hear_disk_failed

    def _why_stray(self, tp: TopicPartition, topic_id: UUID) -> str | None:
        """Asked on the thread that opens the logs; None also where the znode of the topic cannot be read."""
        asked = self.run_zk(self._zk.topics.assignment, tp.topic)
        try:
            assignment = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except CoordinationError:
            return None
        return why_stray(tp, topic_id, assignment, self._config.broker_id)

    def _hear_disk_failed(self, path: Path, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._on_disk_failed, path, reason)

    def _on_disk_failed(self, path: Path, reason: str) -> None:
        """Serve the partitions of one log directory no longer; without any directory left, give up."""
        if self._stopping:
            return
        self._logs.fail(path, reason)
        for tp in self._context.replicas.forget_unusable():
            self._context.stop_coordinating(tp)
            self._context.fetchers.leave(tp)
        if self._logs.has_directory:
            self._context.in_background(self._report_log_dir_failure(), "reporting a failed log directory")
        else:
            self._fail(LogDirFailed(f"no log directory is left in service: {reason}"))

    async def _report_log_dir_failure(self) -> None:
        """Until ZooKeeper has it, for the controller is to find other leaders for what was there."""
        while not self._stopping:
            try:
                await self.run_zk(self._zk.brokers.report_log_dir_failure, self._config.broker_id)
                return
            except CoordinationError as error:
                _logger.warning("the failed log directory will be reported again: %s", error)
                await asyncio.sleep(_REPORT_AGAIN_S)

    def _make_registration(self) -> Registration:
        warnings = RateLimitedLogger(_logger, self._clock.monotonic)
        self._fence = ControllerFence(
            lambda: self.run_zk(self._zk.office.read), lambda text: warnings.warn("controller", text)
        )
        files = SessionFiles(map(Path, self._config.log_dirs))
        self._steps[_Step.SESSION_FILES] = files.close
        info = BrokerInfo(
            self._config.broker_id,
            self._ends.for_brokers,
            self._config.broker_rack or None,
            unbroken_since=self._logs.unbroken_since,
            listeners=unless_plain(self._ends.advertised),
        )
        return Registration(info, self._zk, self.run_zk, self._fence, files, self._clock, self._zk_timeout)

    @property
    def is_assembled(self) -> bool:
        """Whether its parts are there, as they are from some time before ``start`` returns."""
        return self._is_assembled

    @property
    def context(self) -> BrokerContext:
        """Its parts, to be read."""
        return self._context

    @property
    def sockets(self) -> SocketServer:
        """Where clients are served."""
        return self._server

    @property
    def registration(self) -> Registration:
        """In ZooKeeper."""
        assert self._registration is not None
        return self._registration

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping

    @property
    def is_started(self) -> bool:
        """Whether ``start`` has come to its end."""
        return self._is_started

    def meters(self) -> Iterator[RequestMeter]:
        """What counts the requests of each kind."""
        yield from self._dispatch.meters.values()
        yield self._dispatch.follower_meter

    def why_not_ready(self) -> str | None:
        """Why it serves no clients now; None if it does."""
        if self._stopping:
            return "the broker is stopping"
        if not self._is_started:
            return "the broker is starting"
        if self._broker_epoch() is None:
            return "the broker is not registered in ZooKeeper"
        return None

    def _broker_epoch(self) -> int | None:
        """The epoch of the present registration; None while there is none."""
        return self._fence.broker_epoch

    def _assemble(self, cluster_id: str) -> None:
        config, metadata = self._config, MetadataCache(self._config.ends.between_brokers)
        replicas = ReplicaManager(
            config.broker_id,
            self._logs,
            self._loop,
            clock=self._clock,
            max_lag_ms=config.replica_lag_time_max_ms,
            throttle_windows=(config.replication_quota_window_num, 1000 * config.replication_quota_window_size_seconds),
            moving_threads=config.num_replica_alter_log_dirs_threads or len(config.log_dirs),
        )
        cleaner = LogCleaner(self._logs, replicas.changing, self._loop, self._clock, self._settings.layers.in_force)
        grants = CleaningGrants(cleaner, self._loop, self._clock)
        eraser = LogEraser(self._logs, cleaner, self._loop, self._clock, lambda: self._settings.layers.in_force)
        adopter = SegmentAdopter(replicas, self._logs, self._loop, self._clock)
        peers, looks = Peers("sparklog", self._security), Looks()
        witnesses = Witnesses(config.broker_id, peers) if config.failover_fast else None
        self._controller = Controller(
            config.broker_id,
            self._zk,
            self.run_zk,
            self._clock,
            self._settings.topics,
            witnesses,
            security=self._security,
        )
        self._steps[_Step.CONTROLLER] = self._controller.close
        offsets = CoordinatorLog(OFFSETS_TOPIC, config.offsets_topic_num_partitions, replicas, metadata)
        states = CoordinatorLog(TRANSACTIONS_TOPIC, config.transaction_state_log_num_partitions, replicas, metadata)
        turns = self._server.turns
        groups = GroupCoordinator(config, offsets, self._clock, self._loop, GroupTopics(metadata), turns=turns)
        markers = TransactionMarkers(
            replicas, metadata, groups.end_transaction, self._clock, self._zk, self._ask_zk, peers
        )
        producer_ids = ProducerIds(config.broker_id, self._zk, self._ask_zk)
        transactions = TransactionCoordinator(config, states, markers, producer_ids.take, self._clock, self._loop)
        coordinators = TransactionCoordinators(transactions, metadata, peers, self._clock)
        isr_changes = IsrChanges(replicas, metadata, peers, self._clock, self._broker_epoch)
        replicas.on_proposal = isr_changes.propose
        replicas.lives = lambda id_: id_ in metadata.brokers
        fetchers = Fetchers(
            config, metadata, replicas, turns, self._clock, self._broker_epoch, looks, security=self._security
        )
        self._retention = RetentionRounds(replicas, groups, metadata, peers, turns, self._clock)
        self._context = BrokerContext(
            config=config,
            settings=self._settings,
            cluster_id=cluster_id,
            clock=self._clock,
            loop=self._loop,
            metadata=metadata,
            replicas=replicas,
            cleaner=cleaner,
            cleaning_grants=grants,
            eraser=eraser,
            adopter=adopter,
            groups=groups,
            transactions=transactions,
            txn_markers=markers,
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                config.min_incremental_fetch_session_eviction_ms,
                random.randrange,
            ),
            leases=Leases(self._clock),
            quotas=self._quotas,
            fetchers=fetchers,
            isr_changes=isr_changes,
            txn_coordinators=coordinators,
            peers=peers,
            looks=looks,
            txn_entry=TransactionEntry(coordinators, replicas),
            preparation=Preparation(replicas, self._clock),
            topics=TopicMaker(self._settings, metadata, self._zk, self._ask_zk, self._controller.refusals),
            controller=self._controller,
            zk=self._zk,
            run_zk=self._ask_zk,
            run_disk=self._run_disk,
            turns=self._server.turns,
            authorizer=AllowEverything() if self._acls is None else self._acls.authorizer,
            acls=self._acls,
            tokens=self._tokens,
            fence=self._fence,
            producer_ids=producer_ids,
            offered=offered(parse_protocol_version(config.inter_broker_protocol_version)),
        )
        self._steps |= {
            _Step.LEADERSHIP: self._hand_over,
            _Step.REQUESTS: self._answer_last_requests,
            _Step.FETCHERS: fetchers.close,
            _Step.ISR_CHANGES: isr_changes.close,
            _Step.GRANTS: grants.close,
            _Step.ERASER: eraser.close,
            _Step.ADOPTER: adopter.close,
            _Step.CLEANER: cleaner.close,
            _Step.FUTURES: replicas.futures.close,
            _Step.TRANSACTIONS: transactions.close,
            _Step.PEERS: peers.close,
            _Step.LOOKS: looks.close,
            _Step.COORDINATORS: coordinators.close,
            _Step.PREPARATION: self._context.preparation.close,
        }
        self._dispatch = Dispatcher(self._context, self._server.turns)
        self._is_assembled = True

    async def _every(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Do ``work`` again and again, in steps if it has any, or to its end where it is a coroutine; a failure is
        logged and does not end it.
        """
        turns = self._server.turns
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                with turns.watched(lambda: str(work)):
                    steps = work()
                if isinstance(steps, Generator):
                    await turns.drive(steps, lambda: str(work))
                elif isinstance(steps, Awaitable):
                    await steps
            except Exception:
                _logger.exception("%s failed", work)

    def _begin(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Do ``work`` every ``interval_ms`` from now on, until the broker stops."""
        self._chores.append(self._loop.create_task(self._every(interval_ms, work)))

    def _start_chores(self) -> None:
        config = self._config
        chores: tuple[tuple[int, Callable[[], object]], ...] = (
            (
                min(  # all of them are written each time
                    config.log_flush_offset_checkpoint_interval_ms,
                    config.log_flush_start_offset_checkpoint_interval_ms,
                    config.replica_high_watermark_checkpoint_interval_ms,
                ),
                self._logs.checkpoint_later,
            ),
            (config.log_flush_scheduler_interval_ms, self._logs.flush_due),
            (config.leader_imbalance_check_interval_seconds * 1000, self._rebalance),
            (max(config.replica_lag_time_max_ms // 2, 1), self._context.replicas.leave_out_lagging),
            (config.producer_id_expiration_check_interval_ms, self._logs.expire_producers),
            (config.offsets_retention_check_interval_ms, self._context.groups.expire_offsets),
            (config.log_retention_check_interval_ms, self._retention.run),
            (config.transaction_abort_timed_out_interval_ms, self._context.transactions.abort_timed_out),
            (config.transaction_remove_expired_interval_ms, self._context.transactions.expire_ids),
            (_GRANTS_INTERVAL_MS, self._context.cleaning_grants.tend),
            (_GRANTS_INTERVAL_MS, self._context.adopter.tend),
            (_SILENCE_INTERVAL_MS, self.registration.say_if_silent),
            (config.delegation_token_expiry_check_interval_ms, self._remove_ended_tokens),
        )
        for interval_ms, work in chores:
            self._begin(interval_ms, work)
        self._context.cleaner.start()

    def give_up_start(self) -> None:
        """Let a ``start`` that waits for ZooKeeper to register the broker fail; ``stop`` is to follow."""
        if self._registration is not None:
            self._registration.give_up()

    def hurry(self) -> None:
        """Let ``stop`` wait for no request any more."""
        self._hurry.set()

    def _rebalance(self) -> Steps[None]:
        if self._config.auto_leader_rebalance_enable:
            yield from self._controller.rebalance(self._config.leader_imbalance_per_broker_percentage)

    async def _remove_ended_tokens(self) -> None:
        if self._tokens is not None and self._controller.is_active:
            await self._tokens.remove_ended()

    async def _hand_over(self) -> None:
        """Let others lead what is led here, as long as nobody is in a hurry."""
        if not self._config.controlled_shutdown_enable:
            return
        context = self._context
        work = asyncio.ensure_future(
            hand_over(context.replicas, context.metadata, context.peers, self._broker_epoch, _HAND_OVER_S)
        )
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((work, hurried), return_when=asyncio.FIRST_COMPLETED)
        for each in (work, hurried):
            each.cancel()
        await asyncio.gather(work, hurried, return_exceptions=True)

    async def _answer_last_requests(self) -> None:
        """Take no more requests, and answer those in hand before the grace period ends."""
        drained = self._server.drain()
        await self._fence.close()
        self._context.replicas.fetch_purgatory.release()
        await self._context.groups.close()
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((drained, hurried), timeout=_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not drained.done():
            why = "a second signal came" if self._hurry.is_set() else "the grace period is over"
            _logger.warning("%s: hanging up on %d connections not answered yet", why, self._server.connections)

    async def stop(self) -> None:
        """Leave the cluster and close everything that was opened; safe after a failed start.

        Raises what the last step that failed has raised, after all steps.
        """
        self._stopping = True
        if _Step.CONTROLLER in self._steps:
            self._controller.leave()
        for chore in self._chores:
            chore.cancel()
        async with AsyncExitStack() as stack:
            for _, step in sorted(self._steps.items(), reverse=True):
                stack.push_async_callback(_taken, step)


async def _taken(step: Callable[[], object]) -> None:
    """Take one step of a stop to its end."""
    outcome = step()
    if isinstance(outcome, Awaitable):
        await outcome


def _limits_of(config: BrokerConfig) -> Limits:
    """What the settings allow clients. Raises ConfigError if a host is named that cannot be looked up."""
    return Limits(
        max_request_size=config.socket_request_max_bytes,
        max_in_flight=config.queued_max_requests,
        max_request_memory=config.queued_max_request_bytes,
        max_connections=config.max_connections,
        max_per_host=config.max_connections_per_ip,
        per_host_overrides=by_address(parse_overrides(config.max_connections_per_ip_overrides)),
        max_rate=config.max_connection_creation_rate,
        max_idle_s=config.connections_max_idle_ms / 1000,
        slow_request_s=math.inf if config.slow_request_log_ms < 0 else config.slow_request_log_ms / 1000,
    )
