"""How several workers (``-n``) share the tests: by modules, so that what a module sets up is set up once.

Each worker has a ZooKeeper and a cluster of its own. A run has two Spark sessions, each of them one worker's: what uses
one is one piece of work, and these two are the first. Next come the modules that take longest, so that none of them
runs alone at the end; then those that mostly wait, in random order; those that mostly compute come last and fill the
gaps.

Every worker collects all tests, each beginning with other folders: in a new clone a module is compiled by the worker
that comes to it first, and not by all of them at the same time.
"""

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

TABLES = (
    "tests/demo/test_tender.py",
    "tests/docs/test_changelog.py",
    "tests/jobs/test_offload.py",
    "tests/spark/batch/",
    "tests/spark/lake/",
    "tests/testing/test_session.py",
)
SOURCE = (
    "tests/spark/",
    "tests/demo/test_delays.py",
    "tests/demo/test_relay.py",
    "tests/docs/test_migration.py",
    "tests/docs/test_tutorial.py",
)
SPARK = (TABLES, SOURCE)
"""Where the tests that use the ``spark`` fixture are: a session for each of these; a test is of the first it fits."""
SESSIONLESS = (
    "tests/spark/batch/test_compact_deaths.py",
    "tests/spark/batch/test_compact_replicas.py",
    "tests/spark/batch/test_offload_freshness.py",
    "tests/spark/batch/test_renewal.py",
    "tests/spark/batch/test_waves.py",
    "tests/spark/lake/history/test_table_rows.py",
    "tests/spark/lake/test_union",
    "tests/spark/options/test_page.py",
    "tests/spark/options/test_table.py",
    "tests/spark/read/test_batch_reader.py",
    "tests/spark/read/test_direct_replicas.py",
    "tests/spark/read/test_offsets.py",
    "tests/spark/read/test_options.py",
    "tests/spark/read/test_resolver.py",
    "tests/spark/read/test_sizes.py",
    "tests/spark/stream/test_changes_of_leader.py",
    "tests/spark/stream/test_offset.py",
    "tests/spark/stream/test_planner.py",
    "tests/spark/stream/test_reader.py",
    "tests/spark/test_histories.py",
    "tests/spark/test_schema.py",
    "tests/spark/test_throttling.py",
    "tests/spark/values/test_avro",
    "tests/spark/write/test_at_least_once.py",
    "tests/spark/write/test_deci",
    "tests/spark/write/test_options.py",
    "tests/spark/write/test_rows.py",
)
"""Those among them whose tests do not: any worker takes them."""
LONG = (
    "tests/cli/commands/serve/test_demo.py",
    "tests/docs/",
    "tests/histories/",
    "tests/jobs/",
    "tests/notebooks/",
    "tests/spark/test_histories.py",
)
"""Modules of a minute each."""


class Modules(LoadScopeScheduling):
    """Gives out a module at a time, in the order in which they were collected, and what uses a session as one."""

    def __init__(self, config, log):
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid):
        return _session_of(nodeid) or nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Modules(config, log)


def pytest_configure(config):
    if hasattr(config, "workerinput") and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        worker, workers = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
        places = _with_tests(config.args)
        first = worker * len(places) // workers
        config.args = places[first:] + places[:first]


def _with_tests(folders):
    """What has tests in ``folders``, by name: folders, and modules of their own."""
    modules = ((folder, path.relative_to(folder)) for folder in folders for path in Path(folder).rglob("test_*.py"))
    return sorted({str(Path(folder, path.parts[0])) for folder, path in modules})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """The same order in all workers, first that of the modules' names, in the end that of ``_turn``."""
    if not hasattr(config, "workerinput"):
        return (yield)
    items.sort(key=_module_of)
    result = yield
    items.sort(key=_turn)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if "spark" in item.fixturenames and not _session_of(item.nodeid):
        pytest.fail(f"uses a Spark session: mend SPARK or SESSIONLESS in {__file__}", pytrace=False)


def _module_of(item):
    return item.nodeid.partition("::")[0]


def _session_of(nodeid):
    """Which of ``SPARK``; None for what uses no session."""
    if nodeid.startswith(SESSIONLESS):
        return None
    return next((each for each in SPARK if nodeid.startswith(each)), None)


def _turn(item):
    if session := _session_of(item.nodeid):
        return SPARK.index(session)
    if item.nodeid.startswith(LONG):
        return len(SPARK)
    return len(SPARK) + (1 if item.get_closest_marker("integration") else 2)
