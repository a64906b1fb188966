"""What is written whole or not at all: ZooKeeper's multi, fenced by the controller's epoch.

A transaction ``as_controller`` fails at its first operation once another controller has taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NoAuthError, NoNodeError

from sparklog.errors import CoordinationError
from sparklog.zk import znodes

OPS_A_TRANSACTION: Final = 500
TRIES: Final = 5
"""Of a write that others overtake."""


def as_controller(kazoo: KazooClient, epoch_version: int):  # type: ignore[no-untyped-def]
    """A transaction that fails whole, at its first operation, once another controller has taken over."""
    transaction = kazoo.transaction()
    transaction.check(znodes.CONTROLLER_EPOCH, epoch_version)
    return transaction


def commit(transaction, happened: Callable[[], bool]) -> list[object]:  # type: ignore[no-untyped-def]
    """The results of a transaction; none if the answer was lost and it turns out to have ``happened``."""
    try:
        return list(transaction.commit())
    except ConnectionLoss:
        if not happened():
            raise
        return []


def remove(kazoo: KazooClient, paths: list[str], controller_epoch_version: int) -> None:
    """Delete those of the znodes that there are, in one transaction.

    Raises CoordinationError where they come and go again and again meanwhile.
    """
    for _ in range(TRIES):
        asked = [(path, kazoo.exists_async(path)) for path in paths]
        there = [path for path, answer in asked if answer.get() is not None]
        transaction = as_controller(kazoo, controller_epoch_version)
        for path in there:
            transaction.delete(path)
        results = list(transaction.commit())
        check_office(results)
        if not failed(results):
            return
    raise CoordinationError(f"znodes below {paths[0]} come and go; they will be removed later")


def failed(results: list[object]) -> bool:
    """Whether a transaction wrote nothing. Raises NoAuthError where it may not: to try again does not help."""
    for each in results:
        if isinstance(each, NoAuthError):
            raise each
    return any(isinstance(each, KazooException) for each in results)


def check_office(results: list[object]) -> None:
    """Raises CoordinationError if it was the check of the controller epoch that failed a transaction."""
    if isinstance(results[0], BadVersionError | NoNodeError):
        raise CoordinationError("another controller has taken over; this one's epoch is stale")
