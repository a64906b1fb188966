"""Drives the controller: takes the office, watches ZooKeeper, writes decisions, tells the brokers.

Level-triggered: whatever a watch says, the answer is to look again, at the brokers, the topics and the deletions asked
for, and to bring the rest of the cluster in line. A watch that fires twice, or for nothing, costs a look.

What a broker answers counts like what ZooKeeper says. A replica that it refuses is offline there: another leads, or
nobody, and clients are told so. It is asked again after a pause that grows, with the state as it stands, and once it
holds the replica there is an election. A topic is forgotten when every broker has answered that its part is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.config.topic import TopicConfig
from sparklog.controller import reassignment, requests
from sparklog.controller.channel import BrokerChannel
from sparklog.controller.context import ControllerContext
from sparklog.controller.deletion import TopicDeletions
from sparklog.controller.election import decide, elect_unclean, imbalanced, leaderless, prefer
from sparklog.controller.elections import Elections
from sparklog.controller.isr_change import IsrChange, judge
from sparklog.controller.log_survey import LogSurvey, candidates
from sparklog.controller.pauses import Pauses
from sparklog.controller.reassigner import Reassigner, Wishes
from sparklog.controller.states import PartitionStates, RunZk
from sparklog.controller.steps import in_steps
from sparklog.controller.succession import Predecessor, Succession
from sparklog.controller.topic_settings import ReadConfigs, TopicSettings
from sparklog.controller.vigils import Vigils
from sparklog.controller.witnesses import Witnesses
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.log.files import check_topic_name
from sparklog.net.peers import Peers
from sparklog.net.tasks import to_its_end
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    FULL,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    UpdateMetadataResponse,
)
from sparklog.protocol.slices import Steps
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import BrokerInfo, PartitionState

_logger = logging.getLogger(__name__)
R = TypeVar("R", LeaderAndIsrResponse, UpdateMetadataResponse)
_LOOK_AT_LEAST_EVERY_S = 5.0
"""Also without a watch: a word lost on the way to this loop costs seconds, not the cluster's attention."""
_STAND_AGAIN_S = 0.2
_LEAVES_WITHIN_S = 20.0
"""A broker that has said that it is about to stop and is registered for longer, without saying so again, stays: it was
not stopped, or somebody else has said it. Ours take 15 s at most until their registration ends.
"""
_REFUSALS_TOLD = 100
"""In ten seconds, of each kind."""
_FAILURES_TOLD = 1
"""Of ZooKeeper, in ten seconds."""


async def _default_configs(topics: Collection[str]) -> dict[str, TopicConfig]:
    return dict.fromkeys(topics, TopicConfig())


class Controller:
    """This broker's candidacy, and its term in office when it has one."""

    def __init__(
        self,
        broker_id: int,
        zk: ZkClient,
        run_zk: RunZk,
        clock: Clock,
        topic_configs: ReadConfigs = _default_configs,
        witnesses: Witnesses | None = None,
        security: ConnectionSecurity = PLAIN,
    ) -> None:
        """``topic_configs`` gives the settings of topics. With ``witnesses`` a session is not waited for (failover).

        ``security`` is that of the connections to brokers.
        """
        self._id = broker_id
        self._security = security
        self._zk = zk
        self._run_zk = run_zk
        self._clock = clock
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)
        self._settings = TopicSettings(topic_configs)
        self._states = PartitionStates(zk, run_zk)
        self._loop = asyncio.get_running_loop()
        self._channels: dict[int, BrokerChannel] = {}
        self._look = asyncio.Event()
        self._stand = asyncio.Event()
        # Made once: a look that sets a watch anew, while the last one has not fired, then adds nothing to it.
        self._on_office_change = self._wake(self._stand, self._look)
        self._on_cluster_change = self._wake(self._look)
        self.elections = Elections()
        self._task: asyncio.Task[None] | None = None
        self._brokers_changed = False
        self._grown: set[str] = set()
        self._awaiting_look: list[asyncio.Future[None]] = []
        self._vigils = Vigils(broker_id, witnesses, self._look.set)
        self._succession = Succession(broker_id, zk, run_zk, witnesses)
        self._survey = LogSurvey(Peers(f"controller-{broker_id}", security), self._look.set)
        self._begin_term(None)

    def _begin_term(self, context: ControllerContext | None) -> None:
        """Forget what brokers answered to an earlier term, or to another controller."""
        self._context = context
        self._answered: set[TopicPartition] = set()
        """Of these clients are to be told, for their leaders have answered."""
        self._unheard: set[tuple[int, ApiKey]] = set()
        """The brokers that refused a request whole, and its kind."""
        self._retries = Pauses[int](self._clock)
        self._deletions = TopicDeletions(
            self._id, self._zk, self._run_zk, self._clock, self._look.set, lambda *said: self._tell(*said)
        )
        self._reassigner = Reassigner(self._id, self._zk, self._run_zk, self._look.set, self._read_topic)
        self._to_prefer: set[TopicPartition] = set()
        """The partitions that their first replica is to lead, if it may."""
        self._leaves_until: dict[int, float] = {}
        """How long a broker that is about to stop counts as that."""
        self._to_lead_anyhow: set[TopicPartition] = set()
        """Those that any replica is to lead, if they have no leader."""
        waiting, self._awaiting_look = self._awaiting_look, []
        for looked in waiting:
            if not looked.done():
                looked.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "this broker is the controller no longer"))

    @property
    def is_active(self) -> bool:
        return self._context is not None

    @property
    def context(self) -> ControllerContext | None:
        """What the controller knows; None out of office."""
        return self._context

    def refusals(self, topic: str) -> dict[int, ErrorCode]:
        """The brokers that cannot hold partitions of the topic, and why; none known out of office."""
        return {} if self._context is None else self._context.refusals(topic)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def leave(self) -> None:
        """The broker begins to stop: it follows no controller into its office from now on."""
        self._succession.leave()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._resign()
        await self._survey.close()

    def on_session_expired(self) -> None:
        """The office went with the session; stand again."""
        self._stand.set()
        self._look.set()

    def look_at(self, topic: str) -> None:
        """Partitions were added to the topic: read its assignment again."""
        self._grown.add(topic)
        self._look.set()

    def settings_changed(self, topic: str | None) -> None:
        """The settings of the topic, or of all (None), are not what they were."""
        self._settings.changed(topic)
        self._look.set()

    def _in_office(self) -> ControllerContext:
        """Raises ApiError(NOT_CONTROLLER)."""
        if self._context is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self._context

    def _context_for(self, api: str, broker_id: int, broker_epoch: int) -> ControllerContext:
        """For what a broker asks that is registered under this epoch. Raises ApiError(NOT_CONTROLLER or
        STALE_BROKER_EPOCH).
        """
        context = self._in_office()
        if broker_id not in context.brokers or context.brokers[broker_id].epoch != broker_epoch:
            text = f"refused {api} of broker {broker_id}: it is not registered under epoch {broker_epoch}"
            self._warnings.warn(api, text, most=_REFUSALS_TOLD)
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered under {broker_epoch}")
        return context

    def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raises ApiError(NOT_CONTROLLER), or STALE_BROKER_EPOCH if the broker is not registered under this epoch."""
        self._context_for("AllocateProducerIds", broker_id, broker_epoch)

    async def let_go(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """The broker is about to stop: have others lead what it leads. Returns what it leads still, for no other can.

        Raises ApiError(NOT_CONTROLLER or STALE_BROKER_EPOCH).
        """
        context = self._context_for("ControlledShutdown", broker_id, broker_epoch)
        if broker_id not in context.leaving:
            _logger.info("broker %d is about to stop", broker_id)
            context.leaving.add(broker_id)
        self._vigils.expect_stop(broker_id)
        self._leaves_until[broker_id] = self._clock.monotonic() + _LEAVES_WITHIN_S
        await self._look_once()
        return [
            tp
            for tp in context.partitions_on(broker_id)
            if context.states[tp].leader == broker_id and len(context.replicas(tp)) > 1
        ]

    async def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the first replica of each lead that is in sync and lives. Raises ApiError(NOT_CONTROLLER)."""
        self._in_office()
        self._to_prefer.update(partitions)
        await self._look_once()

    async def elect_unclean(self, partitions: Iterable[TopicPartition]) -> None:
        """Let any replica that lives lead those of the partitions that have no leader.

        Raises ApiError(NOT_CONTROLLER).
        """
        self._in_office()
        self._to_lead_anyhow.update(partitions)
        await self._look_once()

    async def reassign(self, wishes: Wishes) -> dict[TopicPartition, ApiError]:
        """Begin to move the partitions to these replicas, or give up to; what of it is refused, and why.

        Raises ApiError(NOT_CONTROLLER).
        """
        self._in_office()
        refused = self._reassigner.ask(wishes)
        await self._look_once()
        return refused

    async def _look_once(self) -> None:
        """Return after a look that began after this call. Raises ApiError(NOT_CONTROLLER)."""
        looked = self._loop.create_future()
        self._awaiting_look.append(looked)
        self._look.set()
        await looked

    def rebalance(self, percentage: int) -> Steps[None]:
        """Have each broker lead what it is to lead first, where others lead more than ``percentage`` of that."""
        context = self._context
        if context is not None:
            found = yield from imbalanced(context, percentage)
            if found and context is self._context:
                self._to_prefer.update(found)
                self._look.set()

    async def change_isrs(
        self, leader: int, broker_epoch: int, asked: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        """Write the ISRs as the leader of the partitions asks; for each the state as it stands then, or why it was not
        written. Clients are told with the next look.

        Raises ApiError: NOT_CONTROLLER, STALE_BROKER_EPOCH, REQUEST_TIMED_OUT if ZooKeeper does not answer.
        """
        context = self._context_for("AlterPartition", leader, broker_epoch)
        before = dict(context.brokers)
        verdicts = await in_steps(self._judging(context, leader, asked))
        wanted = {tp: state for tp, state in verdicts.items() if isinstance(state, PartitionState)}
        behind = [tp for tp, verdict in verdicts.items() if verdict is ErrorCode.NOT_CONTROLLER]
        if wanted:
            await to_its_end(self._write_isrs(context, wanted, before))  # it is written though the leader hangs up
        if behind:
            await self._read_again(context, behind)
        return await in_steps(self._outcomes(context, verdicts))

    def _judging(
        self, context: ControllerContext, leader: int, asked: Mapping[TopicPartition, IsrChange]
    ) -> Steps[dict[TopicPartition, PartitionState | ErrorCode]]:
        verdicts = {}
        for tp, change in asked.items():
            verdict = verdicts[tp] = judge(context, tp, change)
            if isinstance(verdict, ErrorCode) and verdict is not ErrorCode.NONE:
                self._tell_refusal(verdict, f"refused broker {leader} another ISR of {tp}: {verdict.name}")
            yield
        return verdicts

    def _tell_refusal(self, verdict: ErrorCode, text: str) -> None:
        """A leader asks for what cannot be while the cluster changes: it hears of that, and asks anew. No leader asks
        for what makes no sense."""
        if verdict is ErrorCode.INVALID_REQUEST:
            self._warnings.warn("isr", text, most=_REFUSALS_TOLD)
        else:
            self._warnings.inform("isr for now", text, most=_REFUSALS_TOLD)

    async def _write_isrs(
        self,
        context: ControllerContext,
        wanted: dict[TopicPartition, PartitionState],
        before: Mapping[int, BrokerInfo],
    ) -> None:
        """``before``: the brokers as they were when the first of these states was judged."""
        try:
            written, found = await self._states.write(context, wanted)
        except CoordinationError as error:
            self._stand.set()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer: {error}") from error
        self._found(context, {**written, **found})
        context.look_for_lives(before, wanted)

    def _found(self, context: ControllerContext, states: Mapping[TopicPartition, PartitionState]) -> None:
        """ZooKeeper has these states; clients are told of those that are news."""
        news = {tp: state for tp, state in states.items() if tp in context.states and context.is_news(tp, state)}
        context.found(news)
        if news and context is self._context:
            self._answered |= news.keys()
            self._look.set()

    async def _read_again(self, context: ControllerContext, behind: Collection[TopicPartition]) -> None:
        """Leaders know of later states of these than this controller does: it is another's term, or a state was written
        by somebody else, which nothing but a look at ZooKeeper tells.
        """
        try:
            there = {tp: context.replicas(tp) for tp in behind if tp in context.states}
            found = await self._states.read(there)
        except CoordinationError as error:
            self._stand.set()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer: {error}") from error
        self._found(context, found)

    def _outcomes(
        self, context: ControllerContext, verdicts: Mapping[TopicPartition, PartitionState | ErrorCode]
    ) -> Steps[dict[TopicPartition, PartitionState | ErrorCode]]:
        outcomes = {}
        for tp, verdict in verdicts.items():
            outcomes[tp] = self._outcome(context, tp, verdict)
            yield
        return outcomes

    @staticmethod
    def _outcome(
        context: ControllerContext, tp: TopicPartition, verdict: PartitionState | ErrorCode
    ) -> PartitionState | ErrorCode:
        if isinstance(verdict, ErrorCode) and verdict is not ErrorCode.NONE:
            return verdict
        state = context.states.get(tp)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_written = verdict is ErrorCode.NONE or (verdict == state and state.version > verdict.version)
        return state if is_written else ErrorCode.INVALID_UPDATE_VERSION

    def _wake(self, *events: asyncio.Event) -> Callable[[], None]:
        def wake() -> None:
            for event in events:
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(event.set)

        return wake

    async def _run(self) -> None:
        while True:
            self._stand.clear()
            try:
                holder = await self._run_zk(self._zk.office.holder, self._on_office_change)
                if holder is None:
                    await self._stand_for_election()
                    continue
                if self._context is not None and holder == self._id:
                    await self._serve()
                    continue
                await self._resign()
                # After a failure in office the znode is still ours: vacate it, or no broker could stand for election.
                if not await self._run_zk(self._zk.office.give_up):
                    gone = await self._succession.wait(holder, self._stand)
                    if gone is not None:
                        await self._stand_for_election(gone)
            except CoordinationError as error:
                self._warnings.warn("zookeeper", f"controller: {error}", most=_FAILURES_TOLD)
                await self._resign()
                await asyncio.sleep(_STAND_AGAIN_S)
            except Exception:  # or the cluster would be without a controller for as long as this process lives
                _logger.exception("the controller failed")
                await self._resign()
                await asyncio.sleep(_STAND_AGAIN_S)

    async def _stand_for_election(self, gone: Predecessor | None = None) -> None:
        """If nobody is in office, or who is ``gone`` still."""
        await self._resign()
        office = None if gone is None else gone.office
        won = await self._run_zk(self._zk.office.take, self._id, self._clock.now_ms(), office)
        if won is None:
            return
        epoch, version = won
        lives = await self._run_zk(self._zk.brokers.lives)
        foreign = await self._run_zk(self._zk.office.foreign_terms, epoch)
        self._begin_term(ControllerContext(epoch, version, lives=lives, foreign_terms=foreign))
        if gone is not None:
            self._vigils.begin(gone.broker)
        _logger.info("broker %d is the controller, epoch %d", self._id, epoch)
        self._look.set()

    async def _serve(self) -> None:
        """One look after another until the office changes hands."""
        while not self._stand.is_set():
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deletions.left(self._retries.left(_LOOK_AT_LEAST_EVERY_S))):
                    await self._look.wait()
            self._look.clear()
            if not self._stand.is_set():
                awaiting, self._awaiting_look = self._awaiting_look, []
                try:
                    await self._reconcile()
                except BaseException:
                    self._awaiting_look += awaiting  # told when the office is given up
                    raise
                for looked in awaiting:
                    if not looked.done():
                        looked.set_result(None)

    async def _resign(self) -> None:
        if self._context is not None:
            _logger.info("broker %d is no longer the controller", self._id)
        self._begin_term(None)
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
        await self._vigils.close()

    async def _reconcile(self) -> None:
        context = self._context
        assert context is not None
        self._forget_departures(context)
        wake = self._on_cluster_change
        asked_again = self._retries.take_due()
        for id_ in asked_again & {id_ for id_, _ in self._unheard}:
            context.brokers.pop(id_, None)  # as if it were new: tell it everything
        fresh = await self._observe_brokers(context, await self._run_zk(self._zk.brokers.live, wake))
        await self._observe_topics(context, await self._run_zk(self._zk.topics.names, wake))
        await self._deletions.observe(context, await self._run_zk(self._zk.topics.to_delete, wake))
        await self._reassigner.observe(context, wake)
        failed = await self._observe_log_dirs(context, await self._run_zk(self._zk.brokers.log_dir_events, wake))
        await self._settings.catch_up(context)
        changed = await self._decide(context)
        await self._states.account(context)
        await self._announce(context, changed, fresh)
        await self._ask_again(context, asked_again - fresh, failed - fresh)
        await self._reassigner.finish(context, self._channels)
        await self._deletions.advance(context, self._channels)

    def _forget_departures(self, context: ControllerContext) -> None:
        """Count on brokers again that were about to stop, and have not."""
        now = self._clock.monotonic()
        for id_ in [id_ for id_, until in self._leaves_until.items() if until <= now]:
            del self._leaves_until[id_]
            if id_ in context.leaving and id_ in context.brokers:
                _logger.warning("broker %d said that it was about to stop, and has not: it is counted on again", id_)
            context.leaving.discard(id_)

    async def _observe_brokers(self, context: ControllerContext, brokers: dict[int, BrokerInfo]) -> set[int]:
        """Open and close channels; return the brokers that are new, or came back."""
        brokers = self._vigils.living(brokers)
        fresh = {id_ for id_, info in brokers.items() if context.brokers.get(id_) != info}
        for id_ in (context.brokers.keys() - brokers.keys()) | fresh:
            channel = self._channels.pop(id_, None)
            if channel is not None:
                await channel.close()
        for id_ in fresh:
            self._channels[id_] = BrokerChannel(brokers[id_], f"controller-{self._id}", self._security)
        self._brokers_changed = bool(fresh) or context.brokers.keys() != brokers.keys()
        context.brokers = brokers
        for id_ in fresh:
            context.begin_anew(id_)
        return fresh

    async def _observe_log_dirs(self, context: ControllerContext, events: dict[str, int]) -> set[int]:
        """The brokers that report a failed log directory."""
        if events:
            await self._run_zk(self._zk.brokers.forget_log_dir_events, list(events), context.epoch_version)
        return set(events.values())

    async def _observe_topics(self, context: ControllerContext, topics: list[str]) -> None:
        for gone in context.assignments.keys() - set(topics):
            context.forget(gone)
        grown, self._grown = self._grown, set()
        fresh = set(topics) - (context.assignments.keys() - grown)
        await self._settings.learn(context, fresh)
        for topic in fresh:
            await self._read_topic(context, topic)

    async def _read_topic(self, context: ControllerContext, topic: str) -> None:
        try:
            check_topic_name(topic)
            assignment = await self._run_zk(self._zk.topics.assignment, topic)
            replicas = assignment.partitions if assignment else {}
            states = await self._states.read({TopicPartition(topic, number): each for number, each in replicas.items()})
        except (ApiError, MalformedZnode) as error:  # brokers would refuse what they are told of all topics
            _logger.error("topic %s is left alone: %s", topic, error)
            return
        if assignment is not None:
            context.assign(assignment)
            fresh = {tp: state for tp, state in states.items() if context.is_news(tp, state)}
            context.states.update(fresh)  # what was written while this was read is known already
            for tp in fresh:
                context.look_for_restarts(tp)
            for tp in states:
                context.look_for_moves(tp)

    async def _decide(self, context: ControllerContext) -> list[TopicPartition]:
        began = self._clock.monotonic()
        wanted = await in_steps(decide(context))
        left = await in_steps(leaderless(context, wanted))
        unclean = await self._elect_unclean(context, left)
        wanted |= unclean
        to_prefer, self._to_prefer = self._to_prefer & context.states.keys() - wanted.keys(), set()
        wanted |= prefer(context, to_prefer)
        wanted |= await in_steps(reassignment.decide(context, wanted))
        before = {tp: context.states[tp].leader for tp in wanted if tp in context.states}
        written = await self._write_decided(context, wanted)
        after = {tp: context.states[tp].leader for tp in written}
        self.elections.note(before, after, unclean, self._clock.monotonic() - began)
        self._survey.ask(context, [tp for tp in left if tp in context.states and tp.topic in context.assignments])
        return written

    async def _write_decided(
        self, context: ControllerContext, wanted: dict[TopicPartition, PartitionState]
    ) -> list[TopicPartition]:
        confirmed = await self._settings.confirm(context, wanted)
        if len(confirmed) < len(wanted):
            self._look.set()
        if not confirmed:
            return []
        written, found = await self._states.write(context, confirmed)
        self._say_recovered(context, written)
        context.write(written)
        reassignment.took_effect(context, written)
        context.found(found)
        if len(written) < len(confirmed):
            self._look.set()
        return list(written)

    def _say_recovered(self, context: ControllerContext, written: Mapping[TopicPartition, PartitionState]) -> None:
        for tp, state in written.items():
            ends = context.log_ends.get(tp)
            if ends and state.leader in ends:
                text = (
                    f"{tp} is led by broker {state.leader}, whose log ends last, at {ends[state.leader].offset}: "
                    f"brokers {sorted(ends)} had all records, and each may have lost those that were not on its disk"
                )
                self._warnings.warn("recovered", text, most=_REFUSALS_TOLD)

    async def _elect_unclean(
        self, context: ControllerContext, left: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """Leaders that are not in sync, for partitions ``left`` without one, where their topic or an operator wants
        that; what the longest log is about to decide is left to it, unless an operator insists.
        """
        forced, self._to_lead_anyhow = self._to_lead_anyhow, set()
        allowed = await self._settings.may_be_unclean({tp.topic for tp in left})
        chosen = {
            tp: elect_unclean(context, tp)
            for tp in left
            if (tp in forced or tp.topic in allowed) and tp in context.states and tp.topic in context.assignments
            if tp in forced or not (self._vigils.misses(context.states[tp].isr) or candidates(context, tp))
        }
        for tp, state in chosen.items():
            if state is not None:
                text = "%s is led by broker %d, which was not in sync: records that were acknowledged may be lost"
                _logger.warning(text, tp, state.leader)
        return {tp: state for tp, state in chosen.items() if state is not None}

    async def _announce(self, context: ControllerContext, changed: list[TopicPartition], fresh: set[int]) -> None:
        back = {tp for id_ in fresh for tp in context.partitions_on(id_)}  # their replicas there are offline no more
        news = [*changed, *(((self._answered | back) - set(changed)) & context.states.keys())]
        self._answered = set()
        if not news and not self._brokers_changed:
            return
        for id_, channel in list(self._channels.items()):
            full = id_ in fresh
            mine = context.partitions_on(id_) if full else [tp for tp in changed if id_ in context.online(tp)]
            if (
                mine or full
            ) and self._brokers_changed:  # a broker of Kafka's follows no leader that it has not heard of
                await self._tell(context, channel, [])
            if mine or full:
                await self._send_states(context, channel, mine, full=full)
            await self._tell(context, channel, list(context.states) if full else news, is_full=full)

    async def _ask_again(self, context: ControllerContext, refused_before: set[int], failed: set[int]) -> None:
        """Find out which replicas the brokers hold by now: those they refused, or where a disk has failed all."""
        for id_ in (refused_before | failed) & self._channels.keys():
            partitions = context.partitions_on(id_)
            if id_ not in failed:
                partitions = [tp for tp in partitions if tp in context.offline.get(id_, ())]
            if partitions:
                await self._send_states(context, self._channels[id_], partitions, full=False)

    async def _send_states(
        self, context: ControllerContext, channel: BrokerChannel, partitions: list[TopicPartition], *, full: bool
    ) -> None:
        message = await in_steps(requests.leader_and_isr(context, self._id, channel.broker, partitions, full=full))
        asked = {tp: context.states[tp].leader_epoch for tp in partitions}
        answer = channel.send(ApiKey.LEADER_AND_ISR, message)
        answer.add_done_callback(lambda answer: self._hear(context, channel, asked, message, answer))

    def _hear(
        self,
        context: ControllerContext,
        channel: BrokerChannel,
        asked: dict[TopicPartition, int],
        request: LeaderAndIsrRequest,
        answer: asyncio.Future[LeaderAndIsrResponse],
    ) -> None:
        """Take note of which partitions the broker holds; what was decided anew meanwhile is asked anew."""
        is_full = request.type == FULL
        message = self._hear_whole(context, channel, ApiKey.LEADER_AND_ISR, answer, is_full=is_full)
        id_ = channel.broker.id
        if message is None:
            return
        refused = requests.refused_replicas(request, message)
        current = {
            tp for tp, epoch in asked.items() if tp in context.states and context.states[tp].leader_epoch == epoch
        }
        lost = current & refused.keys()
        for tp in lost:
            context.refused(id_, tp, refused[tp])
        news = {tp for tp in current - lost if context.took(id_, tp)}
        if lost:
            example = min(lost)
            text = "broker %d does not hold %d of its partitions, which are offline there until it does; %s for one: %s"
            _logger.warning(text, id_, len(lost), example, refused[example].name)
        if context.offline.get(id_):
            self._retries.postpone(id_)
        elif not any(id_ == unheard for unheard, _ in self._unheard):
            self._retries.forget(id_)
        self._answered |= news
        if news or lost:
            self._look.set()

    async def _tell(
        self,
        context: ControllerContext,
        channel: BrokerChannel,
        partitions: Iterable[TopicPartition],
        *,
        is_full: bool = False,
    ) -> None:
        message = await in_steps(
            requests.update_metadata(context, self._id, channel.broker.epoch, partitions, full=is_full)
        )
        answer = channel.send(ApiKey.UPDATE_METADATA, message)
        answer.add_done_callback(
            lambda answer: self._hear_whole(context, channel, ApiKey.UPDATE_METADATA, answer, is_full=is_full)
        )

    def _hear_whole(
        self,
        context: ControllerContext,
        channel: BrokerChannel,
        api: ApiKey,
        answer: asyncio.Future[R],
        *,
        is_full: bool,
    ) -> R | None:
        """The answer, if the broker is still the one that was asked, and took the request as a whole.

        What it refused to hear is said again by a request that is full: others, sent before or since, do not say it.
        """
        id_ = channel.broker.id
        if answer.cancelled() or context is not self._context or self._channels.get(id_) is not channel:
            return None
        message = answer.result()
        if message.error_code == ErrorCode.NONE:
            if is_full:
                self._unheard.discard((id_, api))
            return message
        _logger.warning("broker %d refused %s: %s", id_, api.name, ErrorCode(message.error_code).name)
        self._unheard.add((id_, api))
        self._retries.postpone(id_)
        self._look.set()
        return None
