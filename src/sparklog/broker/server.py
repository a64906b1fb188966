"""One broker: the order of starting and stopping.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import BrokerContext
from sparklog.broker.dispatch import Dispatcher
from sparklog.broker.fence import ControllerFence
from sparklog.broker.lifecycle.assembly import Foundation, assemble
from sparklog.broker.lifecycle.chores import Chores
from sparklog.broker.lifecycle.first_registry import FirstRegistry
from sparklog.broker.lifecycle.listening import ListeningEnds, security_between_brokers
from sparklog.broker.lifecycle.predecessor import SessionFiles
from sparklog.broker.lifecycle.registration import Registration
from sparklog.broker.lifecycle.shutdown import Shutdown, Step
from sparklog.broker.lifecycle.zookeeper_thread import ZooKeeperThread
from sparklog.broker.replication.departure import hand_over
from sparklog.broker.security import acls, tokens
from sparklog.broker.security.authenticating import Gates
from sparklog.broker.settings import Settings
from sparklog.broker.strays import why_stray
from sparklog.clock import Clock, SystemClock
from sparklog.config.broker import BrokerConfig, parse_overrides
from sparklog.config.listeners import Listener, unless_plain
from sparklog.errors import ConfigError, CoordinationError, LogDirFailed
from sparklog.log.directories.clean_stop import unbroken_since
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.privacy import require_private
from sparklog.log.loader import Knowledge
from sparklog.net.limits import Limits, by_address
from sparklog.net.request_meter import RequestMeter
from sparklog.net.server import SocketServer
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.connecting import ConnectionSecurity
from sparklog.security.principal_builder import principal_builder
from sparklog.structs import TopicPartition
from sparklog.zk.notifications import config_changes
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_READY_TIMEOUT = 30.0
_GRACE_S = 5.0
_HAND_OVER_S = 10.0
_CERTIFICATES_INTERVAL_MS = 3_000
_REPORT_AGAIN_S = 1.0
T = TypeVar("T")


class Broker:
    """Start it, wait for ``failure`` or a wish to stop, stop it; all on one event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._zookeeper = ZooKeeperThread(self._loop, self._clock)
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._stopping = self._is_assembled = self._is_started = False
        self._quotas = ClientQuotas(config, self._clock)
        self._shutdown = Shutdown()
        self._shutdown.add(Step.ZOOKEEPER_THREAD, self._zookeeper.close)
        self._shutdown.add(Step.DISK_THREAD, self._disk_thread.shutdown)
        self._registration: Registration | None = None
        self._limits_asked = 0
        self.failure: asyncio.Future[BaseException] = self._loop.create_future()
        """Set when the broker cannot go on."""
        self._hurry = asyncio.Event()
        self._gates: Gates
        self._security: ConnectionSecurity
        self._context: BrokerContext
        self._dispatch: Dispatcher
        self.listeners: tuple[Listener, ...]
        """Where it listens."""

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
        cluster_id = await self._reach_zookeeper()
        await self._load_settings()
        await self._open_logs(cluster_id)
        self._registration = self._make_registration()
        self._shutdown.add(Step.REGISTRATION, self._registration.close)
        self._zookeeper.is_patient = False  # registering is tried again by itself
        self._assemble(cluster_id)
        self._serve()
        await self._register(self._registration)
        if config.first_registry:
            self._keep_first_registry(config)
        self._context.controller.start()
        metadata = self._context.metadata
        noticed = metadata.wait_for(lambda: metadata.knows_broker(config.broker_id), _READY_TIMEOUT)
        if not await self._registration.unless_given_up(noticed, "a controller took notice of it"):
            raise CoordinationError(
                f"no controller took notice of broker {config.broker_id}; see the other brokers' logs"
            )
        self._chores.begin_all(self._context, self._logs, self._registration)
        self._context.cleaner.start()
        self._is_started = True

    async def _reach_zookeeper(self) -> str:
        """The id of the cluster."""
        zookeeper = self._zookeeper
        await zookeeper.connect(self._config, self._on_session)
        self._shutdown.add(Step.ZOOKEEPER, zookeeper.disconnect)
        await zookeeper.run(zookeeper.client.ensure_tree)
        return await zookeeper.run(zookeeper.client.cluster_id)

    async def _load_settings(self) -> None:
        """Read what ZooKeeper has of the broker's settings, of access control lists, and of delegation tokens."""
        config, zk, run_zk = self._config, self._zookeeper.client, self._zookeeper.run
        self._settings = Settings(config, zk, config_changes(zk), run_zk)
        self._shutdown.add(Step.SETTINGS, self._settings.close)
        await self._settings.load()
        self._acls = acls.configured(config, zk, run_zk, self._clock)
        if self._acls is not None:
            self._quotas.authorizer = self._acls.authorizer
            self._shutdown.add(Step.ACLS, self._acls.close)
            await self._acls.load()
        self._tokens = tokens.configured(config, zk, run_zk, self._clock)
        if self._tokens is not None:
            self._shutdown.add(Step.TOKENS, self._tokens.close)
            await self._tokens.load()
        self._gates.tokens = self._tokens

    async def _open_logs(self, cluster_id: str) -> None:
        config = self._config
        directories = [Path(each) for each in config.log_dirs]
        self._logs = LogManager(
            directories,
            self._settings.topic_defaults,
            self._clock,
            self._disk_thread,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            defaults=Knowledge(producer_expiration_ms=self._settings.layers.in_force.producer_id_expiration_ms),
        )
        self._shutdown.add(Step.LOGS, self._logs.close)
        if config.authorizer_class_name:
            require_private(directories)
        self._logs.own(cluster_id, config.broker_id)
        self._logs.unbroken_since = unbroken_since(directories)
        await self._load_logs()

    def _serve(self) -> None:
        """Take requests, and follow what changes meanwhile."""
        settings = self._settings
        settings.tell_of_entities(self._gates.credentials.take_over)
        self._server.start()
        # the controller does not come by a certificate that has expired, and its news is waited for below
        self._chores.begin(_CERTIFICATES_INTERVAL_MS, self._ends.look_at_certificates)
        settings.tell_of_entities(self._quotas.take_over)
        settings.follow(self._context.replicas, self._take_over, self._context.controller.settings_changed)
        if self._acls is not None:
            self._acls.follow()
        if self._tokens is not None:
            self._tokens.follow()

    async def _register(self, registration: Registration) -> None:
        await registration.register()
        self._logs.unbroken_since = registration.unbroken_since
        registration.follow(self._context.controller.on_session_expired, self._fail)

    def _listen(self, config: BrokerConfig) -> SocketServer:
        server = SocketServer(
            self._loop,
            lambda *asked: self._dispatch(*asked),
            _limits_of(config),
            self._quotas.quotas.connections,
            self._quotas,
        )
        self._shutdown.add(Step.CONNECTIONS, server.close)
        self._chores = Chores(server.turns)
        self._shutdown.add(Step.CHORES, self._chores.cancel)
        warnings = RateLimitedLogger(_logger, self._clock.monotonic)
        builder = principal_builder(config.principal_builder_class)
        self._gates = Gates(builder, self._clock, lambda text: warnings.repeat(text, text))
        self._shutdown.add(Step.GATES, self._gates.close)
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
        zookeeper, metadata = self._zookeeper, self._context.metadata
        kept = FirstRegistry(config.first_registry, config.broker_id, zookeeper.client, zookeeper.run, metadata)
        self._shutdown.add(Step.FIRST_REGISTRY, kept.close)
        kept.follow()

    def _on_session(self, event: str) -> None:
        if not self._stopping and self._registration is not None:
            self._registration.on_session(event)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    async def _load_logs(self) -> None:
        topics = await self._zookeeper.run(self._zookeeper.client.topics.names)
        configs = await self._settings.topics(topics)
        for topic in set(topics) - configs.keys():
            # its logs cannot be opened under other settings: those could delete its records, so this raises
            configs[topic] = await self._settings.topic(topic)
        await self._loop.run_in_executor(None, self._logs.load, configs, self._why_stray)
        self._logs.on_failure = self._hear_disk_failed

    def _why_stray(self, tp: TopicPartition, topic_id: UUID) -> str | None:
        """Asked on the thread that opens the logs; None also where the znode of the topic cannot be read."""
        asked = self._zookeeper.run(self._zookeeper.client.topics.assignment, tp.topic)
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
        if self._logs.dirs.in_service:
            self._context.in_background(self._report_log_dir_failure(), "reporting a failed log directory")
        else:
            self._fail(LogDirFailed(f"no log directory is left in service: {reason}"))

    async def _report_log_dir_failure(self) -> None:
        """Until ZooKeeper has it, for the controller is to find other leaders for what was there."""
        brokers = self._zookeeper.client.brokers
        while not self._stopping:
            try:
                await self._zookeeper.run(brokers.report_log_dir_failure, self._config.broker_id)
                return
            except CoordinationError as error:
                _logger.warning("the failed log directory will be reported again: %s", error)
                await asyncio.sleep(_REPORT_AGAIN_S)

    def _make_registration(self) -> Registration:
        config, clock, zk, run_zk = self._config, self._clock, self._zookeeper.client, self._zookeeper.run
        warnings = RateLimitedLogger(_logger, clock.monotonic)
        self._fence = ControllerFence(lambda: run_zk(zk.office.read), lambda text: warnings.warn("controller", text))
        files = SessionFiles(map(Path, config.log_dirs))
        self._shutdown.add(Step.SESSION_FILES, files.close)
        info = BrokerInfo(
            config.broker_id,
            self._ends.for_brokers,
            config.broker_rack or None,
            unbroken_since=self._logs.unbroken_since,
            listeners=unless_plain(self._ends.advertised),
        )
        session_s = config.zookeeper_session_timeout_ms / 1000
        return Registration(info, zk, run_zk, self._fence, files, clock, session_s)

    @property
    def zookeeper_meter(self) -> RequestMeter:
        """How long what was asked of ZooKeeper took."""
        return self._zookeeper.meter

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
        self._context = assemble(
            Foundation(
                config=self._config,
                clock=self._clock,
                loop=self._loop,
                cluster_id=cluster_id,
                zookeeper=self._zookeeper,
                settings=self._settings,
                acls=self._acls,
                tokens=self._tokens,
                logs=self._logs,
                fence=self._fence,
                quotas=self._quotas,
                security=self._security,
                turns=self._server.turns,
                run_disk=self._run_disk,
            )
        )
        self._shutdown.add_parts(self._context)
        self._shutdown.add(Step.LEADERSHIP, self._hand_over)
        self._shutdown.add(Step.REQUESTS, self._answer_last_requests)
        self._dispatch = Dispatcher(self._context, self._server.turns)
        self._is_assembled = True

    def give_up_start(self) -> None:
        """Let a ``start`` that waits for ZooKeeper, or for a controller, fail; ``stop`` is to follow."""
        self._zookeeper.give_up()
        if self._registration is not None:
            self._registration.give_up()

    def hurry(self) -> None:
        """Let ``stop`` wait for no request any more."""
        self._hurry.set()

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
        await self._shutdown.run()


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
