"""Blocks of producer ids, ``/latest_producer_id_block``: the first rule of idempotence is that none is given twice."""

from __future__ import annotations

from contextlib import suppress

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from sparklog.zk import znodes
from sparklog.zk.znode_client import ZnodeClient


class ProducerIds:
    """The blocks of producer ids that brokers take."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk

    def take(self, broker_id: int, count: int) -> range:
        """The next ``count`` producer ids, never given to anyone before or after."""
        path = znodes.PRODUCER_ID_BLOCK
        while True:
            node = self._zk.get(path)
            start = znodes.decode_producer_id_block(node[0]).stop if node is not None else 0
            block = range(start, start + count)
            data = znodes.encode_producer_id_block(broker_id, block)
            with suppress(BadVersionError, NodeExistsError, NoNodeError):
                if node is None:  # made with the first block, for Kafka reads no empty one
                    self._zk.kazoo.create(path, data)
                else:
                    self._zk.kazoo.set(path, data, version=node[1].version)
                return block
