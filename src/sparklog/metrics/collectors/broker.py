"""What the broker is, and what it holds open: its state, who waits, leases, fetch sessions, ZooKeeper."""

from __future__ import annotations

from sparklog.broker.server import Broker
from sparklog.metrics import families
from sparklog.metrics.collectors.histogram import add_percentiles
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps
from sparklog.zk.znode_client import SessionEvent

_STARTING, _RUNNING, _STOPPING = 1, 3, 7
"""Kafka's numbers (``BrokerState``)."""


class BrokerCollector:
    """Single numbers, each of which is at hand."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self, page: Exposition) -> Steps[None]:
        broker, context = self._broker, self._broker.context
        replicas = context.replicas
        page.add(families.BROKER_STATE, self._state())
        page.add(families.PURGATORY, replicas.fetch_purgatory.waiting, "Fetch")
        page.add(families.PURGATORY, replicas.produce_purgatory.waiting, "Produce")
        page.add(families.FETCH_SESSIONS, len(context.fetch_sessions))
        page.add(families.LEASES, context.leases.count)
        page.add(families.LEASES_GRANTED, context.leases.granted)
        page.add(families.MAX_LAG, context.fetchers.max_lag, "Replica")
        page.add(families.LOG_FLUSHES, replicas.flushes.count)
        page.add(families.LOG_FLUSH_SECONDS, replicas.flushes.seconds)
        self._rooms(page)
        page.add(families.OFFLINE_DIRS, replicas.failed_dirs)
        page.add(families.REGISTERED, int(context.fence.broker_epoch is not None))
        events = broker.registration.events
        page.add(families.ZOOKEEPER_CONNECTED, int(broker.registration.is_connected))
        page.add(families.ZOOKEEPER_CONNECTS, events[SessionEvent.CONNECTED])
        page.add(families.ZOOKEEPER_DISCONNECTS, events[SessionEvent.SUSPENDED])
        page.add(families.ZOOKEEPER_EXPIRES, events[SessionEvent.EXPIRED])
        page.add(families.ZOOKEEPER_COUNT, sum(broker.zookeeper_meter.buckets))
        add_percentiles(page, families.ZOOKEEPER_TIME, broker.zookeeper_meter.buckets)
        page.add(families.THROTTLED, context.quotas.throttled)
        page.add(families.THROTTLE_SECONDS, context.quotas.throttled_ms / 1000)
        self._refusals(page)
        yield

    def _state(self) -> int:
        if self._broker.is_stopping:
            return _STOPPING
        return _RUNNING if self._broker.is_started else _STARTING

    def _rooms(self, page: Exposition) -> None:
        page.lines(families.DIR_TOTAL)
        for path, total, free in self._broker.context.replicas.rooms():
            page.add(families.DIR_TOTAL, total, str(path))
            page.add(families.DIR_FREE, free, str(path))

    def _refusals(self, page: Exposition) -> None:
        acls = self._broker.context.acls
        page.lines(families.REFUSALS)
        for (resource, operation), count in [] if acls is None else sorted(acls.audit.refusals.items()):
            page.add(families.REFUSALS, count, resource.name, operation.name)
