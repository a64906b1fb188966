"""How several workers (``-n``) share the tests: by modules, so that what a module sets up is set up once.

Each worker has a ZooKeeper and a cluster of its own. The one Spark session of a run is one worker's: whatever uses it
is one piece of work, and the first. Next come the modules that mostly wait, in random order; those that mostly compute
come last and fill the gaps.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = (
    "tests/spark/",
    "tests/demo/test_delays.py",
    "tests/demo/test_relay.py",
    "tests/docs/test_migration.py",
    "tests/testing/test_session.py",
)
"""Where the tests that use the ``spark`` fixture are."""


class Modules(LoadScopeScheduling):
    """Gives out a module at a time, in the order in which they were collected, and all of ``SPARK`` as one."""

    def __init__(self, config, log):
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid):
        return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Modules(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if "spark" in item.fixturenames and not item.nodeid.startswith(SPARK):
        pytest.fail(f"uses the Spark session: add its module to SPARK in {__file__}", pytrace=False)


def _turn(item):
    if item.nodeid.startswith(SPARK):
        return 0
    return 2 if item.get_closest_marker("integration") is None else 1
