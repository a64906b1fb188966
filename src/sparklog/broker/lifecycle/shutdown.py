"""The steps of a broker's stop, and their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import IntEnum, auto

from sparklog.broker.context import BrokerContext


class Step(IntEnum):
    """What a stop does, in this order."""

    OFFICE = auto()
    CHORES = auto()
    LEADERSHIP = auto()
    FIRST_REGISTRY = auto()
    REGISTRATION = auto()
    EXPRESSIONS = auto()  # or REQUESTS waits for all that groups have asked
    REQUESTS = auto()
    CONTROLLER = auto()
    FETCHERS = auto()
    ISR_CHANGES = auto()
    GRANTS = auto()
    ERASER = auto()
    ADOPTER = auto()
    CLEANER = auto()
    FUTURES = auto()
    SETTINGS = auto()
    ACLS = auto()
    TOKENS = auto()
    ZOOKEEPER = auto()
    CONNECTIONS = auto()
    GATES = auto()
    TRANSACTIONS = auto()
    PEERS = auto()
    LOOKS = auto()
    COORDINATORS = auto()
    PREPARATION = auto()
    ZOOKEEPER_THREAD = auto()
    DISK_THREAD = auto()  # nothing is written behind the back of the last checkpoint
    LOGS = auto()
    SESSION_FILES = auto()  # last: a process that gets their locks may take this one for dead


class Shutdown:
    """The steps for what has been opened yet."""

    def __init__(self) -> None:
        self._steps: dict[Step, Callable[[], object]] = {}

    def add(self, step: Step, work: Callable[[], object]) -> None:
        """Do ``work`` at this step; what it returns is awaited if it can be."""
        self._steps[step] = work

    def add_parts(self, parts: BrokerContext) -> None:
        """Close the parts of the broker, each at its step."""
        self._steps |= {
            Step.OFFICE: parts.controller.leave,
            Step.EXPRESSIONS: parts.expressions.close,
            Step.CONTROLLER: parts.controller.close,
            Step.FETCHERS: parts.fetchers.close,
            Step.ISR_CHANGES: parts.isr_changes.close,
            Step.GRANTS: parts.cleaning_grants.close,
            Step.ERASER: parts.eraser.close,
            Step.ADOPTER: parts.adopter.close,
            Step.CLEANER: parts.cleaner.close,
            Step.FUTURES: parts.replicas.futures.close,
            Step.TRANSACTIONS: parts.transactions.close,
            Step.PEERS: parts.peers.close,
            Step.LOOKS: parts.looks.close,
            Step.COORDINATORS: parts.txn_coordinators.close,
            Step.PREPARATION: parts.preparation.close,
        }

    async def run(self) -> None:
        """Take all steps, each also where one before it has failed.

        Raises what the last step that failed has raised, after all steps.
        """
        async with AsyncExitStack() as stack:
            for _, work in sorted(self._steps.items(), reverse=True):
                stack.push_async_callback(_taken, work)


async def _taken(work: Callable[[], object]) -> None:
    """Take one step to its end."""
    outcome = work()
    if isinstance(outcome, Awaitable):
        await outcome
