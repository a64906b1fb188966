import asyncio

import pytest

from sparklog.testing.clock import ManualClock
from sparklog.web.fresh import FreshAnswers


class Asked:
    """A question that counts how often it is asked, and is answered when the test says so."""

    def __init__(self, error=None):
        self.times = 0
        self.given_up = 0
        self.answered = asyncio.Event()
        self.answered.set()
        self._error = error

    async def __call__(self):
        self.times += 1
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self._error:
            raise self._error
        return self.times


def on_loop(test):
    clock = ManualClock()

    async def main():
        answers = FreshAnswers(clock, 2.0)
        await test(answers, clock)
        await answers.close()

    asyncio.run(main())


def test_those_who_ask_together_share_a_question():
    async def test(answers, clock):
        ask = Asked()
        ask.answered.clear()
        asked = [asyncio.ensure_future(answers.get("a", ask)) for _ in range(3)]
        await asyncio.sleep(0)
        ask.answered.set()
        assert await asyncio.gather(*asked) == [1, 1, 1]
        clock.advance(1.9)
        assert await answers.get("a", ask) == 1
        clock.advance(0.1)
        assert await answers.get("a", ask) == 2

    on_loop(test)


def test_one_who_goes_away_leaves_the_answer_to_the_others():
    async def test(answers, _):
        ask = Asked()
        ask.answered.clear()
        gone, stays = (asyncio.ensure_future(answers.get("a", ask)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        ask.answered.set()
        assert await stays == 1

    on_loop(test)


async def asked_by(many, answers, ask):
    """So many callers that wait."""
    ask.answered.clear()
    callers = [asyncio.ensure_future(answers.get("a", ask)) for _ in range(many)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert ask.times
    return callers


async def gone(*callers):
    for each in callers:
        each.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


def test_an_answer_that_takes_long_is_asked_for_once_and_is_fresh_when_it_comes():
    async def test(answers, clock):
        ask = Asked()
        callers = await asked_by(1, answers, ask)
        clock.advance(100)
        callers += await asked_by(1, answers, ask)
        ask.answered.set()
        assert await asyncio.gather(*callers) == [1, 1]
        clock.advance(1.9)
        assert await answers.get("a", ask) == 1

    on_loop(test)


def test_what_nobody_waits_for_any_more_is_given_up():
    async def test(answers, _):
        ask = Asked()
        first, second = await asked_by(2, answers, ask)
        await gone(first)
        assert ask.given_up == 0
        await gone(second)
        assert ask.given_up == 1
        ask.answered.set()
        assert await answers.get("a", ask) == 2

    on_loop(test)


def test_a_question_from_before_a_change_is_given_up_too():
    async def test(answers, _):
        before, after = Asked(), Asked()
        callers = await asked_by(1, answers, before)
        answers.forget()
        later = await asked_by(1, answers, after)
        await gone(*callers)
        assert (before.given_up, after.given_up) == (1, 0)
        after.answered.set()
        assert await asyncio.gather(*later) == [1]

    on_loop(test)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_question_does_not_outlive_the_visitor(is_forgotten):
    async def test(answers, _):
        ask = Asked()
        callers = await asked_by(2, answers, ask)
        if is_forgotten:
            answers.forget()
        await answers.close()
        assert ask.given_up == 1
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*callers, return_exceptions=True)
        )

    on_loop(test)


def test_an_error_is_kept_for_nobody():
    async def test(answers, _):
        ask = Asked(ValueError("no"))
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await answers.get("a", ask)
        assert ask.times == 2

    on_loop(test)


def test_after_a_change_it_is_asked_anew():
    async def test(answers, _):
        ask = Asked()
        await answers.get("a", ask)
        answers.forget()
        assert await answers.get("a", ask) == 2

    on_loop(test)


def test_what_is_kept_is_bounded():
    async def test(answers, _):
        for number in range(100):
            await answers.get(number, Asked())
        assert len(answers._answers) == 50

    on_loop(test)
