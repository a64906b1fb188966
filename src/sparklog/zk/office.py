"""The office of controller, ``/controller`` and ``/controller_epoch``: one broker holds it, each term has an epoch."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from kazoo.exceptions import NodeExistsError, NoNodeError

from sparklog.errors import MalformedZnode
from sparklog.zk import znodes
from sparklog.zk.transactions import as_controller, commit, failed
from sparklog.zk.znode_client import OnChange, ZnodeClient, watching

_logger = logging.getLogger(__name__)


class Term(NamedTuple):
    """The controller's broker id (-1: none), and the controller epoch."""

    holder: int
    epoch: int


class Office:
    """The office of the controller: which broker holds it, and since which epoch."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk

    def holder(self, on_change: OnChange | None = None) -> int | None:
        """The controller's broker id; ``on_change`` is told when the znode comes, goes or changes."""
        watch = watching(on_change)
        try:
            return znodes.decode_controller(self._zk.kazoo.get(znodes.CONTROLLER, watch=watch)[0])
        except NoNodeError:
            if watch is not None and self._zk.kazoo.exists(znodes.CONTROLLER, watch=watch) is not None:
                return self.holder(on_change)
            return None

    def take(self, broker_id: int, now_ms: int, after: Term | None = None) -> tuple[int, int] | None:
        """Take the office if it is vacant, or held as in ``after``: the new epoch and its znode's version, or None.

        Both znodes change in one transaction, so that no two controllers ever share an epoch (KIP-380's order). An
        office that was taken while its answer was lost is ours.
        """
        with suppress(NodeExistsError):
            self._zk.kazoo.create(znodes.CONTROLLER_EPOCH, b"0")
        data, stat = self._zk.kazoo.get(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        transaction = self._zk.kazoo.transaction()
        if after is not None:
            if epoch != after.epoch + 1:
                return None
            transaction.delete(znodes.CONTROLLER)
        transaction.create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True)
        transaction.set_data(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version=stat.version)
        transaction.set_data(znodes.TERMS, znodes.encode_terms(epoch, self._terms()[0]))
        results = commit(transaction, lambda: self._is_held(epoch))
        return None if failed(results) else (epoch, stat.version + 1)

    def foreign_terms(self, epoch: int) -> range:
        """The controller epochs just before ``epoch``, which is ours, in which no broker of ours held the office; none
        if it is not known.
        """
        last, before = self._terms()
        return range(before + 1, epoch) if last == epoch and before > 0 else range(0)

    def _terms(self) -> tuple[int, int]:
        node = self._zk.get(znodes.TERMS)
        try:
            return (0, 0) if node is None else znodes.decode_terms(node[0])
        except MalformedZnode as error:
            _logger.error("whose brokers were controllers is not known: %s", error)
            return 0, 0

    def _is_held(self, epoch: int) -> bool:
        node, told = self._zk.get(znodes.CONTROLLER), self._zk.get(znodes.CONTROLLER_EPOCH)
        ours = node is not None and node[1].ephemeralOwner == self._zk.session_id
        return ours and told is not None and int(told[0]) == epoch

    def give_up(self) -> bool:
        """Leave the office if this session holds it; whether it did."""
        term = self._zk.kazoo.exists(znodes.CONTROLLER_EPOCH)
        node = self._zk.get(znodes.CONTROLLER)
        if term is None or node is None or node[1].ephemeralOwner != self._zk.session_id:
            return False
        # A controller that follows us meanwhile stays in office.
        transaction = as_controller(self._zk.kazoo, term.version)
        transaction.delete(znodes.CONTROLLER)
        transaction.commit()
        return True

    def read(self) -> Term:
        """The controller and its epoch: at some moment since this call began, wherever it was written."""
        self._zk.kazoo.sync(znodes.CONTROLLER)
        while True:
            before = self._zk.get(znodes.CONTROLLER_EPOCH)
            node = self._zk.get(znodes.CONTROLLER)
            after = self._zk.get(znodes.CONTROLLER_EPOCH)
            if before == after:
                holder = -1 if node is None else znodes.decode_controller(node[0])
                return Term(holder, -1 if after is None else int(after[0]))
