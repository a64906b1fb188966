"""Replicas of one partition on several brokers, without network, ZooKeeper or a clock that goes by itself.

Each broker is a real ``ReplicaManager`` over real files. What brokers and the controller say to one another is a step
that the test draws: it may come late, in another order, twice, or never.
"""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide
from sparklog.controller.eligible import UNTOLD, LogEnd, standing
from sparklog.controller.isr_change import IsrChange, judge
from sparklog.controller.log_survey import NOTHING, candidates
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches, iter_records
from sparklog.replica.manager import Follower, ReplicaFetch, ReplicaManager
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

TP, ID = TopicPartition("t", 0), UUID(int=1)
MAX_LAG_MS = 10_000
FETCH_BYTES = 400
_WEIGHTS = (30, 60, 20, 10, 1, 3, 6, 2, 1, 3, 4, 1)
"""How often each thing happens, up to the flushes and deletions."""
_WEIGHTS_OF_STOPS = (30, 60, 30, 15, 3, 6, 12, 2, 1, 3, 1, 1, 3, 4, 1, 1, 3)
"""Where brokers often stop: in order, and in all other ways."""


class AtOnce:
    """An executor for what may be done at once."""

    def submit(self, work, *args):
        done = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done


@dataclass
class Sent:
    """A record that a client sent with acks=all, and whether it was told that all have it."""

    value: bytes
    broker: int
    life: int
    epoch: int
    offset: int
    acknowledged: bool = False


class SimBroker:
    """One broker: its life ends with a kill, its files stay."""

    def __init__(self, broker_id, directory, clock, loop, config):
        self.id = broker_id
        self._directory = directory
        self._clock = clock
        self._loop = loop
        self._config = config
        self.life = 0
        self.end = 0
        """Of its log, when it was killed."""
        self.replicas = None
        self.proposals = {}
        self.epoch = -1
        """Of its registration."""
        self.unbroken_since = None
        """The epoch since which it has lost nothing, as far as it can say."""

    def start(self):
        self.life += 1
        self.proposals = {}
        self.logs = LogManager([self._directory], self._config, self._clock, AtOnce())
        self.logs.load({TP.topic: self._config})
        self.replicas = ReplicaManager(self.id, self.logs, self._loop, clock=self._clock, max_lag_ms=MAX_LAG_MS)
        self.replicas.on_proposal = self.proposals.__setitem__

    def stop(self):
        """In order: all is on the disk."""
        self.end = self.partition().log_end_offset if self.partition() else self.end
        self.logs.close()
        self.replicas = None

    def kill(self):
        """As SIGKILL: what was written is in the page cache."""
        self.unbroken_since = None
        self.end = self.partition().log_end_offset if self.partition() else self.end
        for log in self.logs.logs.values():
            log.abandon()
        for log_dir in self.logs.dirs.in_service:
            log_dir.close()
        self.replicas = None

    def cut_power(self, random):
        """As ``kill``, and of what was not flushed a part is gone: all from some byte on."""
        log = self.logs.logs.get(TP)
        kept = torn = None
        if log is not None:
            kept = log.position_of(random.randint(log.recovery_point, log.log_end_offset))
            torn = random.choice((0, 0, 7, 61, 70))
        self.kill()
        for path in sorted(log.directory.glob("*.log")) if log is not None else ():
            base = int(path.name.split(".")[0])
            if base == kept.segment_base:
                with path.open("r+b") as file:
                    file.truncate(min(kept.position + torn, path.stat().st_size))
            elif base > kept.segment_base:
                for each in log.directory.glob(f"{path.stem}.*"):
                    each.unlink()

    @property
    def alive(self):
        return self.replicas is not None

    def partition(self):
        try:
            return self.replicas.partition(TP) if self.alive else None
        except ApiError:
            return None


class SimCluster:
    """``step`` does one thing that may happen; ``check`` raises AssertionError where a promise is broken."""

    def __init__(
        self,
        directory,
        seed,
        *,
        brokers=3,
        min_isr=1,
        unclean=False,
        power_cuts=False,
        standing=False,
        eligible=True,
        asking=True,
    ):
        """``power_cuts``: what was not flushed may be lost, where another member of the ISR has it still.
        ``standing``: it may be lost by any ``min_isr - 1`` brokers at a time, and any may be stopped or killed besides.
        Without ``eligible`` nothing is known of the replicas that have left the ISR, without ``asking`` not whose log
        is the longest.
        """
        self.random = Random(seed)
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self._unclean = unclean
        self._power_cuts = power_cuts or standing
        self._standing = standing
        self._eligible = eligible
        self._asking = asking
        self._min_isr = min_isr
        self.zxid = 0
        config = parse(TopicConfig, {"min.insync.replicas": str(min_isr), "segment.bytes": "2000"})
        self.brokers = {
            number: SimBroker(number, directory / f"broker-{number}", self.clock, self.loop, config)
            for number in range(1, brokers + 1)
        }
        self._config = config
        self.lives = {}
        """As ZooKeeper has them."""
        self.context = self._new_context()
        self.state = PartitionState(1, 0, tuple(self.brokers), 1, version=0)
        self.mail = {number: [] for number in self.brokers}
        self.sent = []
        self.history = []
        self.late = []
        self.shown = 0
        """Up to where any leader has shown the log."""
        self.deleted = 0
        """Below, records were deleted as a client asked."""
        self.cut = set()
        """Whose power was cut, as long as the controller has not noticed."""
        self.at_risk = set()
        """Whose power was cut, and who has not joined the ISR since."""
        self.life_of = {}
        """Of a broker, by its id and the epoch of a registration."""
        self.registered = {}
        """As ZooKeeper has it: the context knows of it with the next look."""
        self.gone = set()
        """Whom the controller takes for gone though it is registered; it may live (``Vigils``)."""
        for broker in self.brokers.values():
            broker.start()
            self._register(broker)
        self.context.brokers = dict(self.registered)
        self.context.lives = self.lives = self.context.account()
        self._decided(self.state)

    def close(self):
        for broker in self.brokers.values():
            if broker.alive:
                broker.kill()
        self.loop.close()

    def _new_context(self):
        context = ControllerContext(epoch=1, epoch_version=0, lives=dict(self.lives))
        context.assign(TopicAssignment(TP.topic, {0: tuple(self.brokers)}, ID))
        context.min_isrs[TP.topic] = self._min_isr
        return context

    def _next_zxid(self):
        self.zxid += 1
        return self.zxid

    def _register(self, broker):
        self.gone.discard(broker.id)
        broker.epoch = self._next_zxid()
        self.life_of[broker.id, broker.epoch] = broker.life
        since = broker.unbroken_since
        self.registered[broker.id] = BrokerInfo(broker.id, Endpoint("x", 1), epoch=broker.epoch, unbroken_since=since)
        if since is None:
            broker.unbroken_since = broker.epoch

    def _as_written(self, state):
        """What ZooKeeper has of a state from now on."""
        eligible, last_known = (state.eligible, state.last_known) if self._eligible else ((), ())
        return replace(state, zxid=self._next_zxid(), eligible=eligible, last_known=last_known)

    def _decided(self, state):
        self.state = self.context.states[TP] = self._as_written(state)
        state = self.state
        for number in self.context.brokers:
            self.mail[number].append((self._life(number), state))

    def _life(self, number):
        """Of a broker, as far as the controller knows."""
        return self.life_of[number, self.context.brokers[number].epoch]

    # What may happen

    def live(self, steps):
        """So many steps, then rest: all that must hold holds. It is closed in the end."""
        try:
            for _ in range(steps):
                self.step()
            self.settle()
            self.check()
        finally:
            self.close()

    def step(self):
        happens = self.random.choices(
            (
                self.produce,
                self.fetch,
                self.hear,
                self.write_isr,
                self.crash,
                self.restart,
                self.look,
                self.wait,
                self.move,
                self.late_fetch,
                self.flush,
                self.delete,
                self.cut_power,
                self.stop,
                self.expire,
                self.succeed,
                self.doubt,
            ),
            _WEIGHTS_OF_STOPS if self._standing else (*_WEIGHTS, 2 if self._power_cuts else 0, 0, 1, 1, 2),
        )[0]
        happens()
        self._settle_produces()
        self._check_watermarks()

    def _any(self):
        return self.random.choice(list(self.brokers.values()))

    def produce(self):
        """A client sends to a broker that believes that it leads."""
        broker = self._any()
        partition = broker.partition()
        if partition is None or not partition.is_leader:
            return
        value = b"%d" % len(self.sent)
        builder = RecordBatchBuilder()
        builder.append(1, None, value)
        try:
            appended = broker.replicas.append(TP, memoryview(bytearray(builder.build())), -1)
        except ApiError:
            return
        sent = Sent(value, broker.id, broker.life, partition.leader_epoch, appended.first_offset)
        self.sent.append(sent)
        self.history.append(f"{broker.id} appends {value!r} at {sent.offset} in epoch {sent.epoch}")

    def _settle_produces(self):
        for sent in self.sent:
            broker = self.brokers[sent.broker]
            partition = broker.partition() if broker.life == sent.life else None
            if sent.acknowledged or partition is None or not partition.still_leads(sent.epoch):
                continue
            if partition.high_watermark.offset > sent.offset:
                sent.acknowledged = True
                self.history.append(f"{sent.value!r} at {sent.offset} is acknowledged by {sent.broker}")

    def fetch(self):
        """A follower asks the broker that it believes to lead, and takes the answer."""
        follower = self._any()
        mine = follower.partition()
        if mine is None or mine.is_leader or mine.leader == NO_LEADER:
            return
        leader, epoch = self.brokers[mine.leader], mine.leader_epoch
        if not leader.alive:
            return
        standing = follower.replicas.following.standing(TP, epoch)
        asked = Follower(follower.id, follower.epoch)
        fetch = ReplicaFetch(standing.offset, standing.latest_epoch, epoch, FETCH_BYTES)
        if self.random.random() < 0.1:
            self.late.append((leader, asked, fetch))  # the connection is lost, and the request may come yet
            return
        try:
            read = leader.replicas.read_as_follower(TP, ID, asked, fetch, min_one_batch=True, is_news=True)
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._return_to_range(follower, leader.replicas.partition(TP), standing, epoch)
            return
        if self.random.random() < 0.1:
            return  # the answer is lost
        if read.diverging is not None:
            self.loop.run_until_complete(follower.replicas.following.drop_diverged(TP, epoch, read.diverging))
            self.history.append(f"{follower.id} diverged from {leader.id}: {read.diverging}")
            return
        piece = read.records
        records = None if piece is None else memoryview(piece.file.read(piece.position, piece.size))
        follower.replicas.following.append_from_leader(TP, epoch, records, read.high_watermark, read.log_start_offset)
        self.history.append(f"{follower.id} has {follower.partition().log_end_offset} of {leader.id}, epoch {epoch}")

    def _return_to_range(self, follower, leader, standing, epoch):
        end, start = leader.log_end_offset, leader.log_start_offset
        if end < standing.offset:
            self.loop.run_until_complete(follower.replicas.following.drop_beyond(TP, epoch, end))
            self.history.append(f"{follower.id} ends at {end} with the leader")
        elif start > standing.offset:
            self.loop.run_until_complete(follower.replicas.following.begin_again_at(TP, epoch, start))
            self.history.append(f"{follower.id} begins again at {start}")

    def late_fetch(self):
        """What a follower asked for on a connection that it has lost, in this life or a former one."""
        if self.late:
            leader, asked, fetch = self.late.pop(self.random.randrange(len(self.late)))
            if leader.alive:
                with suppress(ApiError):
                    leader.replicas.read_as_follower(TP, ID, asked, fetch, min_one_batch=True, is_news=True)
                    self.history.append(f"{leader.id} hears late that {asked} asks {fetch}")

    def flush(self):
        """What is written is on the disk, and the checkpoints tell of it."""
        broker = self._any()
        if broker.partition() is not None:
            broker.partition().log.flush()
            if self.random.random() < 0.5:
                broker.logs.checkpoint()
            self.history.append(f"{broker.id} is flushed")

    def delete(self):
        """A client has records deleted, and what nobody needs any more goes."""
        broker = self._any()
        partition = broker.partition()
        if partition is None or not partition.is_leader:
            return
        before = self.random.randint(0, partition.high_watermark.offset)
        with suppress(ApiError):
            broker.replicas.delete_records(TP, before)
            self.deleted = max(self.deleted, before)
            self.history.append(f"{broker.id} deletes what is before {before}")
        for each in self.brokers.values():
            if each.alive:
                for _ in each.replicas.apply_retention():
                    pass

    def hear(self):
        """A broker hears of a decision; one may come twice, late, or never where others follow."""
        broker = self._any()
        mail = self.mail[broker.id]
        if not broker.alive or not mail:
            return
        number = 0 if self.random.random() < 0.8 else self.random.randrange(len(mail))
        life, state = mail[number]
        if self.random.random() < 0.9:
            mail.pop(number)
        if len(mail) > 1 and self.random.random() < 0.1:
            mail.pop(0)
        if life == broker.life:
            broker.replicas.apply(TP, state, self._config, ID, replicas=tuple(self.brokers))
            self.history.append(f"{broker.id} hears {state}")

    def write_isr(self):
        """The controller hears a proposal; its answer may be lost."""
        broker = self._any()
        proposal = broker.proposals.get(TP)
        known = self.context.brokers.get(broker.id)
        if proposal is None or not broker.alive or known is None or known.epoch != broker.epoch:
            return
        members = zip(proposal.isr, proposal.broker_epochs, strict=True)
        epochs = tuple(broker.epoch if each == broker.id else epoch for each, epoch in members)
        change = IsrChange(broker.id, proposal.leader_epoch, proposal.isr, epochs, proposal.partition_epoch)
        verdict = judge(self.context, TP, change)
        if isinstance(verdict, PartitionState):
            before, self.state = set(self.state.isr), self._as_written(replace(verdict, version=verdict.version + 1))
            self.at_risk -= self._sound() - before  # what others joined for, they may have lost since
            self.context.found({TP: self.state})
            verdict = ErrorCode.NONE
            self.history.append(f"the ISR is {self.state.isr}")
        if self.random.random() < 0.3:
            return
        if verdict is ErrorCode.NONE:
            broker.replicas.settle(TP, proposal, self.state.isr, self.state.version)
            broker.proposals.pop(TP)
        elif verdict is ErrorCode.INELIGIBLE_REPLICA:
            broker.replicas.give_up(TP, proposal)
            broker.proposals.pop(TP)

    def crash(self):
        broker = self._any()
        if broker.alive and self._may_be_missed(broker):
            broker.kill()
            self.history.append(f"{broker.id} is killed")

    def _may_be_missed(self, broker):
        """Whether the promise is to hold without the broker."""
        return self._standing or self._sound() - {broker.id} or not self.cut & set(self.state.isr)

    def cut_power(self):
        """Of a broker, where another of the ISR is sound: of several failures between two looks the controller cannot
        know which has cost records.
        """
        broker = self._any()
        if broker.alive and self._may_fail(broker, self._sound() - {broker.id}):
            broker.cut_power(self.random)
            self.cut.add(broker.id)
            self.history.append(f"the power of {broker.id} is cut")

    def _may_fail(self, broker, is_harmless):
        """Whether the power of the broker may be cut, so that the promise is to hold all the same."""
        if not self._standing:
            return is_harmless
        if len(self.at_risk | {broker.id}) >= self._min_isr:
            return False
        self.at_risk.add(broker.id)
        return True

    def stop(self):
        """In order, with all on the disk; nobody is asked to take over."""
        broker = self._any()
        if broker.alive:
            broker.stop()
            self.history.append(f"{broker.id} has stopped")

    def expire(self):
        """A session is lost, and the broker registers again; that it was away may be seen or not."""
        broker = self._any()
        if broker.alive:
            self._register(broker)
            self.history.append(f"{broker.id} is registered again, with epoch {broker.epoch}")

    def doubt(self):
        """A registered broker is taken for gone, or back under the same registration: rightly or not, for its address
        may be another's, and the process behind it one that has started again and is not registered yet.
        """
        broker = self._any()
        if broker.id in self.registered and (broker.id in self.gone or self._may_be_missed(broker)):
            self.gone ^= {broker.id}
            self.history.append(f"{broker.id} is taken {'for gone' if broker.id in self.gone else 'back'}")

    def succeed(self):
        """Another broker is the controller: it knows what ZooKeeper has, and nothing else."""
        self.context = self._new_context()
        self.gone.clear()
        self._observe()
        self.context.states[TP] = self.state
        self.context.look_for_restarts(TP)
        self.history.append(
            f"a new controller finds {self.state}, and back without their ends {self.context.restarted}"
        )
        self._elect(list(self.context.brokers))
        self._tell_fresh()

    def _sound(self):
        """The members of the ISR that live, and were not away without the controller's knowledge."""
        known = self.context.brokers
        alive = {number for number, each in self.brokers.items() if each.alive}
        return {
            each
            for each in (alive & set(self.state.isr) & known.keys()) - self.gone
            if self._life(each) == self.brokers[each].life
        }

    def restart(self):
        broker = self._any()
        if not broker.alive:
            broker.start()
            self._register(broker)
            self.history.append(f"{broker.id} is back, with epoch {broker.epoch}")

    def look(self):
        """The controller looks who lives, and decides."""
        if self.random.random() < 0.7:  # the sessions of the dead end
            for number, broker in self.brokers.items():
                if not broker.alive:
                    self.registered.pop(number, None)
        self._observe()
        self._elect(list(self.context.brokers))
        self._tell_fresh()

    def _observe(self):
        self.gone &= self.registered.keys()
        living = {number: info for number, info in self.registered.items() if number not in self.gone}
        before, self.context.brokers = self.context.brokers, living
        self.fresh = {number for number, info in living.items() if before.get(number) != info}
        for number in self.fresh:
            self.context.begin_anew(number)
        self.cut = {number for number in self.cut if not self._is_noticed(number)}

    def _is_noticed(self, number):
        """Whether the controller knows that the broker was away, for good."""
        if number in self.gone:
            return False
        known = self.context.brokers.get(number)
        return known is None or (self.brokers[number].alive and known.epoch == self.brokers[number].epoch)

    def _tell_fresh(self):
        for number in self.fresh:
            self.mail[number] = [(self._life(number), self.state)]

    def move(self):
        """The controller has another replica in sync lead, as for a broker that is about to stop."""
        self.look()
        able = {*standing(self.state)} & self.context.brokers.keys() - {self.state.leader}
        others = [each for each in self.state.isr if each in able]
        if others:
            epoch, version = self.state.leader_epoch + 1, self.state.version + 1
            state = replace(self.state, leader=self.random.choice(others), leader_epoch=epoch, version=version)
            self.context.write({TP: state})
            self.history.append(f"{state.leader} is to lead: {state}")
            self._decided(state)

    def _elect(self, live):
        if self._unclean and not set(live) & set(self.state.isr) and live:
            leader = self.random.choice(live)
            self._decided(PartitionState(leader, self.state.leader_epoch + 1, (leader,), 1, self.state.version + 1))
            return
        self._survey()
        changed = finish(decide(self.context)).get(TP)
        if changed is not None:
            self.history.append(f"elected: {changed}, of {self.context.log_ends.get(TP)}")
            if not standing(self.state):
                self.at_risk.discard(changed.leader)
            written = replace(changed, version=self.state.version + 1)
            self.context.write({TP: written})
            self._decided(written)
        if self.random.random() < 0.8:  # else the controller is gone before it has noted that
            self.context.lives = self.lives = self.context.account()

    def _survey(self):
        """The controller asks whose log is the longest, and not all may answer."""
        for number in candidates(self.context, TP):
            broker = self.brokers[number]
            is_heard = broker.alive and broker.epoch == self.context.brokers[number].epoch
            if is_heard and self.random.random() < 0.8:
                end = self._log_end(broker) if self._asking else UNTOLD
                self.context.log_ends.setdefault(TP, {})[number] = end

    @staticmethod
    def _log_end(broker):
        try:
            return LogEnd(*broker.replicas.log_end(TP, ID))
        except ApiError:
            return NOTHING

    def wait(self):
        """Time passes, and leaders look who lags."""
        self.clock.advance(self.random.choice((1.0, 6.0)))
        for broker in self.brokers.values():
            if broker.alive:
                for _ in broker.replicas.leave_out_lagging():
                    pass

    # What must hold

    def _check_watermarks(self):
        """All that is in sync has all that was ever shown."""
        for broker in self.brokers.values():
            partition = broker.partition()
            if partition is not None and partition.is_leader:
                self.shown = max(self.shown, partition.high_watermark.offset)
        for number in set(self.state.isr) - self.cut - self.at_risk:
            member = self.brokers[number]
            end = member.partition().log_end_offset if member.partition() is not None else member.end
            if not self._unclean:
                told = "\n".join(self.history[-60:])
                assert end >= self.shown, f"{number} ends at {end}, below {self.shown}\n{told}"
        if not self._unclean and not self.cut and not self.at_risk:
            self._check_told_end()

    def _check_told_end(self):
        """The end that the leader tells clients never goes backwards, whoever led before."""
        leader = self.brokers.get(self.state.leader)
        partition = leader.partition() if leader is not None else None
        if partition is None or not partition.is_leader or partition.leader_epoch != self.state.leader_epoch:
            return
        end = partition.high_watermark.offset
        if self._tells_end(partition) and end < self.shown:
            told = "\n".join(self.history[-60:])
            raise AssertionError(f"{leader.id} tells of {end}, below {self.shown}\n{told}")

    @staticmethod
    def _tells_end(partition):
        """Whether the leader answers a client that asks for the end of the log."""
        return partition.knows_end

    def settle(self):
        """All live, all is heard, and all is copied; one leader is left."""
        for broker in self.brokers.values():
            if not broker.alive:
                broker.start()
                self._register(broker)
        self.gone.clear()
        self._observe()
        self._elect(list(self.brokers))
        while self.state.leader == NO_LEADER:  # not all have told where their logs end
            self._elect(list(self.brokers))
        for broker in self.brokers.values():
            self.mail[broker.id] = [(broker.life, self.state)]
        for _ in range(2_000):
            for happens in (self.hear, self.fetch, self.fetch, self.fetch, self.write_isr):
                happens()
            partitions = [broker.partition() for broker in self.brokers.values()]
            if all(partitions) and set(self.state.isr) == set(self.brokers):
                ends = {each.log_end_offset for each in partitions}
                ends |= {each.high_watermark.offset for each in partitions}
                if len(ends) == 1 and all(each.leader_epoch == self.state.leader_epoch for each in partitions):
                    self._settle_produces()
                    return
        raise AssertionError("the replicas do not come together\n" + "\n".join(self.history[-60:]))

    def check(self):
        """What was acknowledged is there, in its place; the replicas are equal."""
        held = {number: self._values(broker) for number, broker in self.brokers.items()}
        told = "\n".join(self.history)
        begun = max(broker.partition().log_start_offset for broker in self.brokers.values())
        held = {number: {o: v for o, v in values.items() if o >= begun} for number, values in held.items()}
        first = held[self.state.leader]
        for number, values in held.items():
            assert values == first, f"{number} differs from {self.state.leader}\n{told}"
        for sent in self.sent:
            if sent.acknowledged and sent.offset >= max(begun, self.deleted):
                assert first.get(sent.offset) == sent.value, f"{sent} is lost\n{told}"

    @staticmethod
    def _values(broker):
        found = {}
        for block in broker.partition().read_all(1 << 20):
            for batch in iter_batches(block):
                found |= {record.offset: bytes(record.value) for record in iter_records(batch)}
        return found
