"""Retention policies of others: found by name, told their settings, and kept from doing harm."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError
from sparklog.log.retention import SegmentView
from sparklog.replica.policies import InstalledPolicies, PolicyFailed, check_installed
from sparklog.structs import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SEGMENTS = [SegmentView(n * 10, n * 10 + 10, 5, n) for n in range(3)]


class Policy:
    """Answers what its class says; remembers what it was told."""

    name = "mine"
    made: list[tuple[TopicPartition, str]] = []  # noqa: RUF012 (of all of them, on purpose)

    def __init__(self, tp, settings):
        self.made.append((tp, settings["retention.ms"]))

    answer: Callable[..., object]

    def give_up(self, segments, now_ms):
        return self.answer(segments, now_ms)


def policies(answer, patience_s=60.0):
    """``mine`` gives up what ``answer(segments, now_ms)`` says."""
    cls = type("Mine", (Policy,), {"answer": staticmethod(answer), "made": []})
    found = {"mine": SimpleNamespace(load=lambda: cls)}
    return InstalledPolicies(lambda: found, patience_s), cls


def ask(installed, config=TopicConfig(), tp=TP, name="mine"):  # noqa: B008 (it is frozen)
    return asyncio.run(installed.give_up(name, tp, config, SEGMENTS, 99))


def test_a_policy_is_given_the_segments_and_the_time():
    given = []
    installed, _ = policies(lambda *told: given.append(told) or 2)
    assert ask(installed) == 2
    assert given == [(SEGMENTS, 99)]


def test_a_policy_is_made_once_for_a_partition_and_anew_when_its_settings_change():
    installed, cls = policies(lambda *_: 0)
    first, second = parse(TopicConfig, {"retention.ms": "1"}), parse(TopicConfig, {"retention.ms": "2"})
    for config, tp in ((first, TP), (first, TP), (first, OTHER), (second, TP), (second, TP)):
        ask(installed, config, tp)
    assert cls.made == [(TP, "1"), (OTHER, "1"), (TP, "2")]
    installed.retain([OTHER])
    ask(installed, first, OTHER)
    ask(installed, second, TP)
    assert cls.made[3:] == [(TP, "2")]


@pytest.mark.parametrize("answer", [-1, 4, 1.0, True, None, "2"])
def test_an_answer_that_is_no_number_of_segments_is_a_failure(answer):
    with pytest.raises(PolicyFailed, match="a number from 0 to 3 was wanted"):
        ask(policies(lambda *_: answer)[0])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no"), StopIteration("no"), KeyboardInterrupt("no")])
def test_whatever_a_policy_raises_is_a_failure(error):
    def answer(*_):
        raise error

    with pytest.raises(PolicyFailed, match=f"it raised {type(error).__name__}: no"):
        ask(policies(answer)[0])


def test_one_that_cannot_be_made_or_found_is_a_failure():
    installed, _ = policies(lambda *_: 0)
    with pytest.raises(PolicyFailed, match="not installed"):
        ask(installed, name="other")
    broken = InstalledPolicies(lambda: {"mine": SimpleNamespace(load=lambda: 1 / 0)})
    with pytest.raises(PolicyFailed, match="ZeroDivisionError"):
        ask(broken)


def test_one_that_does_not_come_back_is_not_called_again_before_it_has():
    release, calls = threading.Event(), []

    def answer(*_):
        calls.append(1)
        release.wait()
        return 1

    async def scene():
        installed, _ = policies(answer, patience_s=0.0)
        with pytest.raises(PolicyFailed, match="has not answered within 0 s"):
            await installed.give_up("mine", TP, TopicConfig(), SEGMENTS, 99)
        with pytest.raises(PolicyFailed, match="has not come back from its last call, for t-0"):
            await installed.give_up("mine", OTHER, TopicConfig(), SEGMENTS, 99)
        assert len(calls) <= 1
        release.set()
        while installed.is_busy("mine"):
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert len(calls) == 1


def test_built_in_names_are_known_and_others_are_refused_with_what_there_is():
    check_installed(["size", "age", "offload"])
    with pytest.raises(ConfigError, match="no policy hold here; this broker has age, size, offload"):
        check_installed(["age", "hold"])
