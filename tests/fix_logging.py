"""Logging, for tests of programs that set it up."""

import logging

import pytest

_CHANGED = (None, "sparklog.replica.cleaning", "sparklog.spark.batch.compact", "kazoo", "py4j")
"""Loggers that programs set up, or the example of ``conf/``; the first is the root."""


@pytest.fixture
def logging_as_before():
    """What a test sets up is gone after it."""
    loggers = [logging.getLogger(name) for name in _CHANGED]
    before, factory = (
        [(each.handlers[:], each.level, each.propagate) for each in loggers],
        logging.getLogRecordFactory(),
    )
    yield
    logging.setLogRecordFactory(factory)
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        for added in set(each.handlers) - set(handlers):
            added.close()
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)
