"""What went in and out, by topic and of all."""

from __future__ import annotations

from itertools import islice
from typing import Final

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition, Family
from sparklog.protocol.slices import Steps
from sparklog.replica.traffic import TopicTraffic, Traffic

_FIELDS: Final = {
    families.RECORDS_IN: "records_in",
    families.BYTES_IN: "bytes_in",
    families.BYTES_OUT: "bytes_out",
    families.PRODUCES: "produces",
    families.FETCHES: "fetches",
    families.FAILED_PRODUCES: "failed_produces",
    families.FAILED_FETCHES: "failed_fetches",
    families.BYTES_REJECTED: "bytes_rejected",
    families.CONVERTED_IN: "converted_in",
    families.CONVERTED_OUT: "converted_out",
}
_WITHOUT_TOPIC: Final = {
    families.REPLICATED_IN: "replicated_in",
    families.REPLICATED_OUT: "replicated_out",
}
_TOPICS_A_STEP = 50


class TrafficCollector:
    """Kafka's ``BrokerTopicMetrics``: each by topic, and without a label of all topics that are or were here."""

    def __init__(self, traffic: Traffic, most: int) -> None:
        """``most`` topics have series of their own, by name."""
        self._traffic = traffic
        self._most = most

    def collect(self, page: Exposition) -> Steps[None]:
        total = self._traffic.total()
        for family, field in {**_FIELDS, **_WITHOUT_TOPIC}.items():
            page.lines(family).append(f"{family.name} {getattr(total, field)}\n")
        for number, (topic, traffic) in enumerate(islice(self._traffic.topics(), self._most)):
            if number % _TOPICS_A_STEP == 0:
                yield
            self._of_topic(page, topic, traffic)

    @staticmethod
    def _of_topic(page: Exposition, topic: str, traffic: TopicTraffic) -> None:
        for family, field in _FIELDS.items():
            value: int = getattr(traffic, field)
            if value or _is_basic(family):
                page.add(family, value, topic)


def _is_basic(family: Family) -> bool:
    """Whether a topic has a series where nothing was counted: boards show 0 then, not a gap."""
    return family in (families.RECORDS_IN, families.BYTES_IN, families.BYTES_OUT)
