"""CommitCompaction: take over what the holder of a grant wrote: a group of segments, or that all is done, or given up.

A group is put in place as one of the broker's own workers is, with the same checks. What is said twice counts once. A
group that waits for readers is answered with REQUEST_TIMED_OUT when the time is up, and is to be asked for again.
"""

from __future__ import annotations

import asyncio
import json
from enum import IntEnum
from typing import Any

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.compaction.process import CleaningFailed
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.errors import ApiError, ErrorCode, LogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CommitCompactionRequest, CommitCompactionResponse
from sparklog.replica.cleaning import Abandoned
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.COMMIT_COMPACTION
VERSIONS = range(0, 1)
_LONGEST_REASON = 1000
"""Characters of it that are kept."""
_LONGEST_REPORT = 64 << 10
"""Bytes: a report is read on the loop, and anybody may send one."""


class Step(IntEnum):
    """What is said of a cleaning."""

    GROUP = 0
    """Drafts are complete that bear the tag."""
    DONE = 1
    """Every group is in place; ``report`` has the numbers as ``CleanerStats``."""
    GIVEN_UP = 2
    """``report`` says why: kind, text."""


async def handle(broker: BrokerContext, request: ApiRequest[CommitCompactionRequest]) -> CommitCompactionResponse:
    message = request.message
    topic = broker.cleaning_grants.topic_of(message.token)
    try:
        if topic is not None:
            check(broker, request, Operation.ALTER, Resource(ResourceType.TOPIC, topic))
    except ApiError as refused:
        return _answer(refused.code, refused.reason)
    taking = broker.loop.create_task(_take(broker, message), name=f"a step of cleaning {message.token}")
    try:
        done, _ = await asyncio.wait([taking], timeout=max(message.timeout_ms, 0) / 1000)
        if not done:
            return _answer(ErrorCode.REQUEST_TIMED_OUT, "the group is being put in place, or waits for readers of it")
        taking.result()
    except ApiError as error:
        return _answer(error.code, error.reason)
    except (Abandoned, LogError) as error:
        return _answer(ErrorCode.OPERATION_NOT_ATTEMPTED, str(error))
    finally:
        taking.cancel()
    return _answer(ErrorCode.NONE, None)


async def _take(broker: BrokerContext, message: CommitCompactionRequest) -> None:
    grants = broker.cleaning_grants
    try:
        if message.step == Step.GROUP:
            group = CleanedGroup(tuple(message.old), tuple(message.new))
            await grants.put_in_place(message.token, group, message.tag)
        elif message.step == Step.DONE:
            await grants.finish(message.token, CleanerStats.from_dict(_read(message)))
        elif message.step == Step.GIVEN_UP:
            why = _read(message)
            text = str(why["text"])[:_LONGEST_REASON]
            await grants.give_up(message.token, CleaningFailed(Failure(why["kind"]), text))
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{message.step} is no step of a cleaning")
    except (ValueError, TypeError, KeyError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the report cannot be read: {error}") from error


def _read(message: CommitCompactionRequest) -> Any:
    """What the report says. Raises ValueError."""
    if len(message.report) > _LONGEST_REPORT:
        raise ValueError(f"it has {len(message.report)} bytes, of at most {_LONGEST_REPORT}")
    try:
        return json.loads(bytes(message.report))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _answer(code: ErrorCode, message: str | None) -> CommitCompactionResponse:
    return CommitCompactionResponse(throttle_time_ms=0, error_code=code, error_message=message)
