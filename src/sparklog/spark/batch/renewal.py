"""Renewing grants while a job works: a thread that asks each broker three times in the time that they run."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from types import TracebackType

from sparklog.client.cluster.compaction_grants import Grant, renew_cleanings
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import SparklogError
from sparklog.structs import BrokerId

_log = logging.getLogger(__name__)


class Renewal:
    """Use it in a ``with``. A driver that dies renews nothing: then its logs are free when the grants lapse."""

    def __init__(self, config: ClientConfig, duration_ms: int) -> None:
        self._config = config
        self._duration_ms = duration_ms
        self._grants: dict[tuple[BrokerId, int], Grant] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal of cleanings", daemon=True)

    def __enter__(self) -> Renewal:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def add(self, grant: Grant) -> None:
        with self._lock:
            self._grants[grant.broker, grant.token] = grant

    def drop(self, grant: Grant) -> None:
        with self._lock:
            self._grants.pop((grant.broker, grant.token), None)

    def _run(self) -> None:
        with ClusterMetadata(self._config) as cluster:
            while not self._over.wait(self._duration_ms / 3000):
                self._renew(cluster)

    def _renew(self, cluster: ClusterMetadata) -> None:
        tokens: defaultdict[BrokerId, list[int]] = defaultdict(list)
        with self._lock:
            for broker, token in self._grants:
                tokens[broker].append(token)
        for broker, mine in tokens.items():
            try:
                if broker not in cluster.brokers:
                    cluster.fetch([])
                lapsed = renew_cleanings(cluster, broker, mine, self._duration_ms)
            except (SparklogError, KeyError) as error:
                _log.warning("the cleanings of broker %s are not renewed: %s", broker, error)
                continue
            if lapsed:
                _log.warning("broker %s has given up %d cleanings", broker, len(lapsed))
