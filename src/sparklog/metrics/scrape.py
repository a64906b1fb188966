"""One scrape: all collectors, in steps."""

from __future__ import annotations

import time

from sparklog.broker.server import Broker
from sparklog.clock import SystemClock
from sparklog.config.broker import BrokerConfig
from sparklog.metrics import families
from sparklog.metrics.collectors.broker import BrokerCollector
from sparklog.metrics.collectors.cleaner import CleanerCollector
from sparklog.metrics.collectors.collector import Collector
from sparklog.metrics.collectors.connections import ConnectionCollector
from sparklog.metrics.collectors.controller import ControllerCollector
from sparklog.metrics.collectors.disk import DiskCollector
from sparklog.metrics.collectors.groups import GroupCollector
from sparklog.metrics.collectors.loop import LoopLag
from sparklog.metrics.collectors.offload import OffloadCollector
from sparklog.metrics.collectors.partitions import PartitionCollector
from sparklog.metrics.collectors.requests import RequestCollector
from sparklog.metrics.collectors.traffic import TrafficCollector
from sparklog.metrics.collectors.transactions import TransactionCollector
from sparklog.metrics.ends import PartitionEnds
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps


class Scrape:
    """The collectors of one broker, and what they have cost so far."""

    def __init__(self, broker: Broker, config: BrokerConfig, loop_lag: LoopLag) -> None:
        context = broker.context
        self._ends = PartitionEnds(context, config.metrics_offsets_max)
        self._time = SystemClock.monotonic
        self.count = 0
        self.loop_s = self.cpu_s = 0.0
        self._collectors: tuple[Collector, ...] = (
            TrafficCollector(context.replicas.traffic, config.metrics_partitions_max),
            RequestCollector(broker.meters, context.clock),
            PartitionCollector(context.replicas, config.metrics_partitions_max),
            BrokerCollector(broker),
            ConnectionCollector(broker.sockets),
            DiskCollector(),
            ControllerCollector(context.controller),
            GroupCollector(context.groups, self._ends, config.metrics_offsets_max),
            TransactionCollector(context.transactions, context.clock),
            CleanerCollector(context.cleaner),
            OffloadCollector(context.replicas.retention, config.metrics_partitions_max),
            loop_lag,
        )

    def steps(self) -> Steps[bytes]:
        """The page, encoded."""
        page = Exposition()
        page.add(families.SCRAPES, self.count)
        page.add(families.SCRAPE_LOOP, self.loop_s)
        page.add(families.SCRAPE_CPU, self.cpu_s)
        for each in self._collectors:
            yield from self._timed(each.collect(page))
        self.count += 1
        self._ends.refresh()
        parts: list[bytes] = []
        yield from self._timed(page.encoding(parts))
        return b"".join(parts)

    def _timed(self, steps: Steps[None]) -> Steps[None]:
        while True:
            began, cpu_s = self._time(), time.thread_time()
            try:
                next(steps)
            except StopIteration:
                return
            finally:
                self.loop_s += self._time() - began
                self.cpu_s += time.thread_time() - cpu_s
            yield
