"""The thread of strangers' expressions."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparklog.broker.expressions import Expressions
from sparklog.errors import ApiError, ErrorCode


def test_calls_run_one_after_another_off_the_loop() -> None:
    expressions, threads = Expressions(), []

    def match(number: int) -> int:
        threads.append(threading.current_thread())
        return number

    async def body() -> list[int]:
        return await asyncio.gather(*(expressions.run(match, number) for number in range(3)))

    assert asyncio.run(body()) == [0, 1, 2]
    assert len({*threads}) == 1
    assert threading.current_thread() not in threads
    expressions.close()


def test_a_broker_that_stops_waits_for_no_expression() -> None:
    expressions, may_end, ran = Expressions(), threading.Event(), []

    def match(number: int) -> int:
        assert may_end.wait(60)
        ran.append(number)
        return number

    async def body() -> None:
        asked = [asyncio.ensure_future(expressions.run(match, number)) for number in range(3)]
        await asyncio.sleep(0)
        expressions.close()
        with pytest.raises(ApiError) as refused:
            await expressions.run(match, 3)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        may_end.set()
        _, *waited = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in waited] == [ApiError, ApiError]

    asyncio.run(body())
    assert ran in ([0], [])
