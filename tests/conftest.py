"""What every test has: the fixtures of ``fix_*.py``, and a header that says what ran. pytest-randomly adds the seed."""

import gc
import os
import resource
import signal

import pytest
from hypothesis import HealthCheck, settings

from sparklog.record import _impl

pytest_plugins = [
    "fix_cluster",
    "fix_comparisons",
    "fix_compiled",
    "fix_logging",
    "fix_programs",
    "fix_secrets",
    "fix_spark",
    "fix_workers",
]

# No deadlines: how long an example takes says more of the machine than of the code.
_RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deterministic", _RELAXED, derandomize=True, max_examples=50)
settings.register_profile("soak", _RELAXED, max_examples=400)
settings.register_profile("exhaustive", _RELAXED, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))


_OPEN_FILES = 8192


def _raise_file_limit() -> None:
    """A worker holds open files of tests that are over until the collector comes round; brokers do the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def pytest_configure(config: pytest.Config) -> None:
    _raise_file_limit()
    # tests/ mirrors src/, so modules of different packages share a name, which only this mode allows without packages.
    config.option.importmode = "importlib"
    # What a shell starts in the background ignores SIGINT, and so would every program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected lives to the end: no collection of garbage looks at it, as a full one would for 0.4 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_report_header() -> str:
    name = vars(_impl.codec)["__name__"].rpartition(".")[2]
    return f"record codec: {name}" + (f" ({_impl.fallback_reason})" if _impl.fallback_reason else "")
