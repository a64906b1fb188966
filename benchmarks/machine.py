"""The machine that is measured on: what it is, how busy it is, what a process of it has used."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sparklog.clock import Clock

QUIET_SHARE = 0.15
"""The machine counts as quiet while at most this share of its CPU time is spent."""
_SAMPLE_S = 0.3
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def describe() -> str:
    """Cores, processor, memory, system and Python, in one line."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB memory, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def installed(package: str) -> str:
    """The version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def busy_share(clock: Clock, seconds: float = _SAMPLE_S) -> float:
    """The share of all CPU time that was spent during the next ``seconds``."""
    before = _cpu_ticks()
    clock.sleep(seconds)
    after = _cpu_ticks()
    total = sum(after) - sum(before)
    return 1 - (after[3] + after[4] - before[3] - before[4]) / total if total else 0.0


def await_quiet(clock: Clock, timeout: float) -> float:
    """Wait until others leave the CPU alone, ``timeout`` seconds at the longest; how busy it was at last."""
    deadline = clock.monotonic() + timeout
    while (share := busy_share(clock)) > QUIET_SHARE and clock.monotonic() < deadline:
        pass
    return share


def _cpu_ticks() -> list[int]:
    """User, nice, system, idle, iowait, irq, softirq, steal (``proc_stat(5)``)."""
    with open("/proc/stat") as stat:
        return [int(word) for word in stat.readline().split()[1:9]]


def cpu_seconds(pid: int) -> float:
    """CPU time that process ``pid`` has used, all its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def resident_bytes(pid: int) -> int:
    """Memory that process ``pid`` has resident now, mapped files left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def rss_bytes(pid: int) -> int:
    """Memory that process ``pid`` has resident now, mapped files with it."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """Memory that process ``pid`` has had resident at most, mapped files with it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def pin(pid: int, cpu: int) -> None:
    """Keep process ``pid``, all threads that it has and will have, to one processor."""
    _bind(f"/proc/{pid}/task", {cpu})


def give_way(pid: int, niceness: int) -> None:
    """Give process ``pid``, all threads that it has and will have, a lower priority than this process has."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, 0) + niceness)


def _bind(threads: str, cpus: set[int]) -> None:
    """Keep the threads that a directory of /proc lists to these processors."""
    for thread in os.listdir(threads):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cpus)


@contextmanager
def one_core() -> Iterator[int]:
    """Keep this process, and those that this thread begins, to one processor; its number. As before at the end."""
    before = os.sched_getaffinity(0)
    cpu = max(before)
    pin(os.getpid(), cpu)
    try:
        yield cpu
    finally:
        _bind("/proc/self/task", before)
