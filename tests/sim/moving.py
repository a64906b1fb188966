"""A simulated cluster in which replicas move too, and the controller's office changes hands."""

from contextlib import suppress
from dataclasses import replace

from sim.cluster import ID, TP, SimCluster

from sparklog.controller import reassignment
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide
from sparklog.errors import ApiError
from sparklog.testing.steps import finish


class MovingCluster(SimCluster):
    """``stored`` is the assignment that ZooKeeper has. A broker's mail says which replicas there are."""

    def __init__(self, directory, seed, **how):
        super().__init__(directory, seed, brokers=4, **how)
        self.stored = self.context.assignments[TP.topic]

    def step(self):
        chance = self.random.random()
        if chance < 0.03:
            self.ask_to_move()
        elif chance < 0.04:
            self.change_office()
        super().step()

    def ask_to_move(self):
        """A client asks, or gives up; ZooKeeper has it at once."""
        target = self.random.sample(list(self.brokers), self.random.randint(1, 3))
        if self.random.random() < 0.2:
            target = None
        with suppress(ApiError):
            if target is not None:
                reassignment.check_target(self.context, TP, target)
            planned = {0: reassignment.plan(self.context, TP, target)}
            self.stored = reassignment.replan(self.context, TP.topic, planned)
            reassignment.began(self.context, TP.topic, planned)
            self.history.append(f"to be moved: {planned}")

    def change_office(self):
        """A new controller knows what ZooKeeper says, and tells everybody."""
        self.gone.clear()
        self._observe()
        before, self.context = self.context, ControllerContext(self.context.epoch + 1, 0, lives=dict(self.lives))
        self.context.brokers, self.context.min_isrs = before.brokers, before.min_isrs
        self.context.assign(self.stored)
        self.context.states[TP] = self.state
        self.context.look_for_restarts(TP)
        self.context.look_for_moves(TP)
        self.history.append(f"another controller: {self.stored.of(0)}, {self.state}")
        self._elect(list(self.context.brokers))
        self.fresh = set(self.context.brokers)
        self._tell_fresh()

    def succeed(self):
        self.change_office()

    def _decided(self, state):
        state = self.state = self.context.states[TP] = self._as_written(state)
        for number in self.context.brokers:
            if number in self.context.replicas(TP):
                self.mail[number].append((self._life(number), state, self.context.replicas(TP)))

    def _tell_fresh(self):
        for number in self.fresh:
            if number in self.context.replicas(TP):
                self.mail[number] = [(self._life(number), self.state, self.context.replicas(TP))]
            elif number not in self.stored.partitions[0] and self._is_there(number):
                self._delete(number)

    def _is_there(self, number):
        """Whether the broker lives the life that the controller knows."""
        return self.brokers[number].alive and self._life(number) == self.brokers[number].life

    def _delete(self, number):
        broker = self.brokers[number]
        self.history.append(f"{number} deletes its replica")
        self.mail[number] = []
        broker.proposals.pop(TP, None)
        broker.replicas.stop(TP, delete=True)
        broker.end = 0

    def hear(self):
        broker = self._any()
        mail = self.mail[broker.id]
        if broker.alive and mail:
            number = 0 if self.random.random() < 0.8 else self.random.randrange(len(mail))
            life, state, replicas = mail[number]
            if self.random.random() < 0.9:
                mail.pop(number)
            if life == broker.life:
                broker.replicas.apply(TP, state, self._config, ID, replicas=replicas)
                self.history.append(f"{broker.id} hears {state} of {replicas}")

    def _elect(self, live):
        self._survey()
        wanted = finish(decide(self.context))
        wanted |= finish(reassignment.decide(self.context, wanted))
        if TP in wanted:
            written = replace(wanted[TP], version=self.state.version + 1)
            self.context.write({TP: written})
            reassignment.took_effect(self.context, {TP: written})
            self.history.append(f"decided: {written} of {self.context.assignment_of(TP)}")
            self._decided(written)
        self.context.lives = self.lives = self.context.account()
        for number in reassignment.departing(self.context):
            if self._is_there(number):
                self._delete(number)
                self.context.departures[TP].gone.discard(number)
        for topic, completed in reassignment.departed(self.context).items():
            self.stored = self.context.stored(topic).changed(completed)
            reassignment.finished(self.context, [TP])
            self.history.append(f"moved: {completed}")

    def settle(self):
        """All live, the moves end, and all is copied. What is checked after that are the replicas that are left."""
        for broker in self.brokers.values():
            if not broker.alive:
                broker.start()
                self._register(broker)
        self.gone.clear()
        for _ in range(2_000):
            self._observe()
            self._elect([])
            self._tell_fresh()
            for number in self.context.replicas(TP):
                partition = self.brokers[number].partition()
                if partition is None or partition.leader_epoch != self.state.leader_epoch:
                    self.mail[number] = [(self._life(number), self.state, self.context.replicas(TP))]
            for happens in (self.hear, self.fetch, self.fetch, self.fetch, self.write_isr):
                happens()
            if self._is_settled():
                self._settle_produces()
                self.brokers = {number: self.brokers[number] for number in self.context.replicas(TP)}
                return
        raise AssertionError("the replicas do not come together\n" + "\n".join(self.history[-60:]))

    def _is_settled(self):
        replicas = self.context.replicas(TP)
        partitions = [self.brokers[number].partition() for number in replicas]
        if self.context.moving or self.context.departures or not all(partitions):
            return False
        if set(self.state.isr) != set(replicas) or self.stored.of(0).replicas != replicas:
            return False
        assert not [number for number, each in self.brokers.items() if number not in replicas and each.partition()]
        ends = {each.log_end_offset for each in partitions} | {each.high_watermark.offset for each in partitions}
        return len(ends) == 1 and all(each.leader_epoch == self.state.leader_epoch for each in partitions)
