"""Retention policies that are found by name: the built-in ones, and those of the entry points ``sparklog.retention``.

A policy of others is a stranger: it may raise, answer nonsense or never answer. It is called in a thread of its own,
which neither the loop nor the end of the broker waits for. While one call has not come back, its policy is not called
again. Whatever goes wrong becomes a ``PolicyFailed``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from sparklog.config.definition import describe
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError
from sparklog.log.retention import BUILT_IN, PolicyFactory, RetentionPolicy, SegmentView
from sparklog.structs import TopicPartition

GROUP = "sparklog.retention"
"""The entry points' group."""
PATIENCE_S = 10.0


class Loadable(Protocol):
    """What an entry point is here."""

    def load(self) -> PolicyFactory:
        """Whatever importing it raises."""


class PolicyFailed(Exception):
    """A policy gave no answer that counts, and why."""


def find_installed() -> dict[str, EntryPoint]:
    """The policies that packages bring, by name; a built-in one is not replaced."""
    return {each.name: each for each in entry_points(group=GROUP) if each.name not in BUILT_IN}


def check_installed(names: Iterable[str]) -> None:
    """Raises ConfigError for a policy that this broker does not have."""
    others = set(names) - BUILT_IN.keys()
    installed = find_installed() if others else {}
    unknown = sorted(others - installed.keys())
    if unknown:
        known = ", ".join([*BUILT_IN, *sorted(installed)])
        raise ConfigError(
            f"sparklog.retention.policies: there is no policy {', '.join(unknown)} here; this broker has {known}."
            f" Others come with packages that have entry points of the group {GROUP!r}"
        )


class InstalledPolicies:
    """The policies of others, as one broker uses them. Belongs to the loop's thread."""

    def __init__(
        self,
        find: Callable[[], Mapping[str, Loadable]] = find_installed,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._find = find
        self._patience_s = patience_s
        self._made: dict[tuple[str, TopicPartition], tuple[TopicConfig, RetentionPolicy]] = {}
        self._busy: dict[str, TopicPartition] = {}

    def retain(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the policies of all other partitions."""
        kept = set(partitions)
        self._made = {key: each for key, each in self._made.items() if key[1] in kept}

    def is_busy(self, name: str) -> bool:
        """Whether a call of the policy has not come back."""
        return name in self._busy

    async def give_up(
        self, name: str, tp: TopicPartition, config: TopicConfig, segments: Sequence[SegmentView], now_ms: int
    ) -> int:
        """What policy ``name`` answers. Raises PolicyFailed."""
        if self.is_busy(name):
            raise PolicyFailed(f"it has not come back from its last call, for {self._busy[name]}")

        def ask() -> object:
            return self._policy(name, tp, config).give_up(segments, now_ms)

        self._busy[name] = tp
        work = _in_thread(ask, f"retention policy {name}")
        work.add_done_callback(lambda _: self._busy.pop(name, None))
        await asyncio.wait((work,), timeout=self._patience_s)
        if not work.done():
            raise PolicyFailed(f"it has not answered within {self._patience_s:g} s")
        return _checked(work.result(), len(segments))

    def _policy(self, name: str, tp: TopicPartition, config: TopicConfig) -> RetentionPolicy:
        known = self._made.get((name, tp))
        if known is not None and known[0] is config:
            return known[1]
        entry_point = self._find().get(name)
        if entry_point is None:
            raise PolicyFailed("it is not installed on this broker")
        policy = entry_point.load()(tp, describe(config))
        self._made[name, tp] = config, policy
        return policy


def _checked(answer: object, most: int) -> int:
    if isinstance(answer, PolicyFailed):
        raise answer
    if type(answer) is not int or not 0 <= answer <= most:
        raise PolicyFailed(f"it answered {answer!r:.100}, where a number from 0 to {most} was wanted")
    return answer


def _in_thread(work: Callable[[], object], name: str) -> asyncio.Future[object]:
    """What ``work`` returns, or PolicyFailed with what it raised, in a thread for which the process does not wait."""
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except PolicyFailed as error:
            outcome.set_result(error)
        except BaseException as error:  # a stranger's SystemExit too
            outcome.set_result(PolicyFailed(f"it raised {type(error).__name__}: {error}"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(outcome)
