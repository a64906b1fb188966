"""All quotas of a broker: the four types for clients, and that for addresses."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.quota.client_quota import ClientQuota
from sparklog.quota.connections import ConnectionRates
from sparklog.quota.entity import Entity
from sparklog.quota.keys import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from sparklog.quota.mutations import MutationQuota
from sparklog.quota.rate import Windows


class QuotaWindows(NamedTuple):
    """Over which time each is measured."""

    clients: Windows = Windows(11, 1000)
    """``quota.window.num`` and ``quota.window.size.seconds``"""
    mutations: Windows = Windows(11, 1000)
    """``controller.quota.window.num`` and ``controller.quota.window.size.seconds``"""


class Quotas:
    """What is set is in force with the next request; what was used before it still counts."""

    def __init__(self, windows: QuotaWindows) -> None:
        self.produce = ClientQuota(windows.clients)
        """Bytes of requests."""
        self.fetch = ClientQuota(windows.clients)
        """Bytes of answers, and of leases."""
        self.request = ClientQuota(windows.clients, longest_ms=windows.clients.size_ms)
        """Percent of the loop's time."""
        self.mutations = MutationQuota(windows.mutations)
        self.connections = ConnectionRates(windows.clients)
        self._limits = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutations.limits,
        }

    def set(self, entity: Entity, bounds: dict[str, float]) -> None:
        """These are the quotas of the entity now, by their names; it has no others."""
        for name, limits in self._limits.items():
            limits.set(entity, bounds.get(name))

    @property
    def is_set(self) -> bool:
        """Whether any client has a quota."""
        return self.produce.is_set or self.fetch.is_set or self.request.is_set or self.mutations.is_set
