"""A simulated cluster: replicas move, disks fail, brokers say that they stop, and preferred leaders are elected."""

from contextlib import contextmanager
from dataclasses import replace

from sim.cluster import TP
from sim.moving import MovingCluster

from sparklog.controller.election import prefer
from sparklog.errors import ErrorCode


class FailingCluster(MovingCluster):
    """The disk of a broker fails until it is started again; it keeps what it has."""

    def __init__(self, directory, seed, **how):
        self.failed = set()
        self.fresh = set()
        super().__init__(directory, seed, **how)

    def step(self):
        chance = self.random.random()
        if chance < 0.01:
            self.fail_disk()
        elif chance < 0.02:
            self.leave()
        elif chance < 0.025:
            self.prefer()
        elif chance < 0.03:
            self.context.leaving.discard(self._any().id)
        super().step()

    def fail_disk(self):
        """The controller may hear of it at once, or with the broker's next answer."""
        broker = self._any()
        if broker.partition() is None or not self._may_be_missed(broker):
            return
        broker.end = broker.partition().log_end_offset
        broker.replicas.stop(TP, delete=False)
        broker.proposals.pop(TP, None)
        self.failed.add(broker.id)
        self.history.append(f"the disk of {broker.id} fails")
        if self.random.random() < 0.8:
            self._refuse(broker)

    def _refuse(self, broker):
        known = broker.id in self.context.brokers and self._is_there(broker.id)
        if known and broker.id in self.context.replicas(TP):
            self.context.refused(broker.id, TP, ErrorCode.KAFKA_STORAGE_ERROR)

    def leave(self):
        """A broker says that it is about to stop."""
        broker = self._any()
        if broker.id in self.context.brokers and self._may_be_missed(broker):
            self.context.leaving.add(broker.id)
            self.history.append(f"{broker.id} is about to stop")
            self._observe()
            self._elect([])
            self._tell_fresh()

    def prefer(self):
        """The first replica is to lead, if it may."""
        for state in prefer(self.context, [TP]).values():
            written = replace(state, version=self.state.version + 1)
            self.context.write({TP: written})
            self.history.append(f"preferred: {written}")
            self._decided(written)

    def hear(self):
        broker = self._any()
        if broker.alive and broker.id in self.failed:
            if self.mail[broker.id]:
                life, state, _ = self.mail[broker.id].pop(0)
                if life == broker.life and state.leader_epoch == self.state.leader_epoch:
                    self._refuse(broker)
            return
        with self._choosing(broker):
            super().hear()
        held = broker.partition()
        if held is not None and broker.id in self.context.brokers and held.leader_epoch == self.state.leader_epoch:
            self.context.took(broker.id, TP)

    def stop(self):
        broker = self._any()
        with self._choosing(broker):
            super().stop()
        if broker.id in self.failed:  # it cannot say that nothing is lost
            broker.unbroken_since = None

    def restart(self):
        broker = self._any()
        if not broker.alive:
            self.failed.discard(broker.id)
        with self._choosing(broker):
            super().restart()

    @contextmanager
    def _choosing(self, broker):
        """What happens next happens to this broker."""
        drawn, self._any = self._any, lambda: broker
        try:
            yield
        finally:
            self._any = drawn

    def settle(self):
        for number in self.failed:
            if self.brokers[number].alive:
                self.brokers[number].kill()
                self.registered.pop(number, None)
        self.failed.clear()
        self._observe()
        self._tell_fresh()
        self.context.leaving.clear()
        for refused in self.context.offline.values():
            refused.clear()
        super().settle()
