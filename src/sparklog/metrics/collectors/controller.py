"""What the controller knows of the cluster; on a broker that is none all of it is 0, as Kafka's are."""

from __future__ import annotations

from sparklog.controller.context import ControllerContext
from sparklog.controller.runtime import Controller
from sparklog.metrics import families
from sparklog.metrics.collectors.histogram import add_percentiles
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps

_PARTITIONS_A_STEP = 500


class ControllerCollector:
    """Kafka's ``KafkaController``."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self, page: Exposition) -> Steps[None]:
        context = self._controller.context
        offline = imbalanced = 0
        states = [] if context is None else list(context.states.items())
        for first in range(0, len(states), _PARTITIONS_A_STEP):
            assert context is not None
            brokers, assignments, deleting = context.brokers, context.assignments, context.deleting
            for (topic, number), state in states[first : first + _PARTITIONS_A_STEP]:
                assigned = assignments.get(topic)
                replicas = assigned and assigned.partitions.get(number)
                if replicas and topic not in deleting:  # it may be another topic of the name by now
                    leader = state.leader
                    offline += leader not in brokers
                    imbalanced += leader != replicas[0]
            yield
        page.add(families.OFFLINE_PARTITIONS, offline)
        page.add(families.IMBALANCED, imbalanced)
        self._sums(page, context)
        self._elections(page)
        yield

    def _elections(self, page: Exposition) -> None:
        elections = self._controller.elections
        page.add(families.LEADER_ELECTIONS, elections.leaders)
        page.add(families.UNCLEAN_ELECTIONS, elections.unclean)
        page.add(families.ELECTION_COUNT, sum(elections.times.buckets))
        add_percentiles(page, families.ELECTION_TIME, elections.times.buckets)

    @staticmethod
    def _sums(page: Exposition, context: ControllerContext | None) -> None:
        page.add(families.ACTIVE_CONTROLLER, int(context is not None))
        page.add(families.ACTIVE_BROKERS, len(context.brokers) if context else 0)
        page.add(families.TOPICS, len(context.assignments) if context else 0)
        page.add(families.ALL_PARTITIONS, len(context.states) if context else 0)
        page.add(families.TO_DELETE, len(context.deleting) if context else 0)
        page.add(families.MOVING, len(context.moving) if context else 0)
