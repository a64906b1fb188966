"""Others are asked whether they too see a broker refuse connections (ProbeBroker), before it is taken for gone.

Invariants: no broker alone is believed that another one is gone: the broker that asks has seen it refuse, and so has
one other. Where one other still reaches it, it lives. Where all others are brokers that do not offer ProbeBroker
(Kafka's), or there are no others, what was seen by the one that asks is enough. Others that do not answer confirm
nothing: a broker that is cut off from them takes no other for gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum

from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.net.peers import Peers
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ProbeBrokerRequest
from sparklog.zk.znodes import BrokerInfo

_LANE = "probe"
_TIMEOUT_S = 3.0
_AT_ONCE = 3
"""Of a large cluster not all are asked: the ones with the numbers that follow that of the broker which asks."""


class Unasked(Enum):
    """In place of what a broker sees."""

    NOT_OFFERED = "it does not offer ProbeBroker"


Word = Sight | Unasked


def verdict(words: Sequence[Word], awaited: int) -> bool | None:
    """Whether those who were asked confirm that a broker is gone; None if it is open, for of ``awaited`` others the
    answers are to come, or none that was asked can tell.
    """
    if Sight.REACHED in words:
        return False
    if Sight.REFUSED in words:
        return True
    if awaited or all(word is Unasked.NOT_OFFERED for word in words):
        return None
    return False


class Witnesses:
    """Belongs to the loop's thread."""

    def __init__(self, broker_id: int, peers: Peers) -> None:
        self._id = broker_id
        self._peers = peers

    async def confirm(self, broker: BrokerInfo, live: Iterable[BrokerInfo]) -> bool:
        """Whether ``broker``, which has refused a connection of this one, is gone, as far as the live others see."""
        others = [each for each in live if each.id not in (self._id, broker.id)]
        others.sort(key=lambda each: (each.id < self._id, each.id))
        for start in range(0, len(others), _AT_ONCE):
            found = await self._ask(others[start : start + _AT_ONCE], broker)
            if found is not None:
                return found
        return True

    async def _ask(self, others: Sequence[BrokerInfo], broker: BrokerInfo) -> bool | None:
        asking = {asyncio.ensure_future(self._ask_one(other, broker)) for other in others}
        words: list[Word] = []
        try:
            while True:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                words += [each.result() for each in done]
                found = verdict(words, len(asking))
                if found is not None or not asking:
                    return found
        finally:
            for each in asking:
                each.cancel()

    async def _ask_one(self, other: BrokerInfo, broker: BrokerInfo) -> Word:
        request = ProbeBrokerRequest(broker_id=broker.id, host=broker.endpoint.host, port=broker.endpoint.port)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await self._peers.request(other.endpoint, _LANE, ApiKey.PROBE_BROKER, lambda _: request)
            return Sight.UNKNOWN if answer.error_code else Sight(answer.sight)
        except ApiError as error:
            return Unasked.NOT_OFFERED if error.code is ErrorCode.UNSUPPORTED_VERSION else Sight.UNKNOWN
        except (SparklogError, TimeoutError, ValueError):  # a number that is no sight
            return Sight.UNKNOWN
