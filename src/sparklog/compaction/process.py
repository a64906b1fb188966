"""The broker's end of a worker process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from sparklog.compaction.erasure import ErasureStats, ErasureTask, Progress
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask, Failure
from sparklog.errors import SparklogError

_LINE_LIMIT = 1 << 26
"""Bytes: a group may have many segments."""


class CleaningFailed(SparklogError):
    """A worker could not clean a log; nothing of it has changed that was not adopted."""

    def __init__(self, kind: Failure, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _group_in(answer: dict[str, Any]) -> CleanedGroup:
    return CleanedGroup(tuple(answer["group"]["old"]), tuple(answer["group"]["new"]))


class Worker:
    """One worker process, begun when it is first needed; belongs to the loop's thread."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.stats = CleanerStats()
        """Of the last log that was cleaned whole."""

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._process is None else self._process.pid

    async def clean(self, task: CleaningTask) -> AsyncGenerator[CleanedGroup, None]:
        """Have a log cleaned. Each group is to be adopted, or the iteration given up, before the next is asked for.

        Raises CleaningFailed. A caller that gives up has to ``end`` the process.
        """
        line = await asyncio.to_thread(task.to_json)  # it may have many producers
        async with aclosing(self._answers(line)) as answers:
            async for answer in answers:
                if "group" in answer:
                    yield _group_in(answer)
                else:
                    self.stats = CleanerStats(**answer["done"])

    async def erase(self, task: ErasureTask) -> AsyncGenerator[CleanedGroup | Progress | ErasureStats, None]:
        """Have a log erased, or searched; what was done comes last. Otherwise as ``clean``."""
        lines = await asyncio.to_thread(task.to_lines)  # it may have many keys
        async with aclosing(self._answers(lines)) as answers:
            async for answer in answers:
                if "group" in answer:
                    yield _group_in(answer)
                elif "progress" in answer:
                    yield Progress(*answer["progress"])
                else:
                    yield ErasureStats.from_dict(answer["done"])

    async def _answers(self, task: str) -> AsyncGenerator[dict[str, Any], None]:
        """What the process answers to a task, up to that it is done. Raises CleaningFailed."""
        process = await self._begun()
        self._send(process, task)
        while True:
            answer = await self._answer(process)
            if "failed" in answer:
                raise CleaningFailed(Failure(answer["failed"]["kind"]), answer["failed"]["text"])
            yield answer
            if "group" in answer:
                self._send(process, '{"go": true}')
            elif "done" in answer:
                return

    async def _begun(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "sparklog.compaction.worker",
                    str(os.getpid()),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    limit=_LINE_LIMIT,
                )
            except OSError as error:
                raise CleaningFailed(Failure.NO_ROOM, f"a worker process cannot be begun: {error}") from error
        return self._process

    @staticmethod
    def _send(process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line.encode() + b"\n")

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            code = await process.wait()
            raise CleaningFailed(Failure.NO_ROOM, f"the worker process ended with status {code}; see what it printed")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self) -> None:
        """End the process, if there is one, whatever it does; what it was writing is left under ``.cleaned``."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.communicate()  # to the end of its output: then nothing of it is left on the loop
        if self._process is process:  # and so whoever is cancelled meanwhile can end it again
            self._process = None
