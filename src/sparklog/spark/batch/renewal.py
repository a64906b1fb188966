"""Renewing grants while a job works: a thread for each broker, which asks it three times in the time that they run.

So a broker that does not answer keeps none of the others waiting.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from sparklog.client.cluster.compaction_grants import Grant, renew_cleanings, seconds_until
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import SparklogError
from sparklog.structs import BrokerId

_log = logging.getLogger(__name__)


class Renewal:
    """Use it in a ``with``. A driver that dies renews nothing: then its logs are free when the grants lapse."""

    def __init__(self, cluster: ClusterMetadata, duration_ms: int) -> None:
        """``cluster`` knows the brokers already."""
        self._cluster = cluster
        self._duration_ms = duration_ms
        self._tokens: dict[BrokerId, set[int]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> Renewal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What a thread asks just now is not waited for."""
        self._over.set()

    def add(self, grant: Grant) -> None:
        with self._lock:
            if grant.broker not in self._tokens:
                self._tokens[grant.broker] = set()
                name = f"renewal of cleanings at broker {grant.broker}"
                threading.Thread(target=self._run, args=(grant.broker,), name=name, daemon=True).start()
            self._tokens[grant.broker].add(grant.token)

    def drop(self, grant: Grant) -> None:
        with self._lock:
            self._tokens[grant.broker].discard(grant.token)

    def _run(self, broker: BrokerId) -> None:
        while not self._over.wait(self._duration_ms / 3000):
            self._renew(broker)

    def _renew(self, broker: BrokerId) -> None:
        with self._lock:
            mine = [*self._tokens[broker]]
        if not mine:
            return
        try:
            with self._cluster.pool.within(seconds_until(self._duration_ms / 3000)):
                lapsed = renew_cleanings(self._cluster, broker, mine, self._duration_ms)
        except (SparklogError, KeyError) as error:
            _log.warning("the cleanings of broker %s are not renewed: %s", broker, error)
            return
        if lapsed:
            _log.warning("broker %s has given up %d cleanings", broker, len(lapsed))
