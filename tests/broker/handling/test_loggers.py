"""Levels of loggers, told and changed."""

import logging

import pytest

from sparklog.broker.handling import loggers
from sparklog.config.dynamic import Change, Operation
from sparklog.errors import ApiError, ErrorCode

PACKAGE, MODULE = "sparklog_test_loggers", "sparklog_test_loggers.below.module"


@pytest.fixture
def module():
    """A logger whose packages have none."""
    logger = logging.getLogger(MODULE)
    yield logger
    for name in (MODULE, PACKAGE):
        logging.getLogger(name).setLevel(logging.NOTSET)


def change(name, level, operation=Operation.SET, **options):
    loggers.change_levels([Change(name, operation, level)], **{"validate_only": False} | options)


def test_a_level_counts_for_all_below_until_they_have_their_own(module):
    change(PACKAGE, "ERROR")
    assert loggers.levels()[MODULE] == "ERROR"
    assert not module.isEnabledFor(logging.WARNING)
    change(MODULE, "TRACE")
    assert (loggers.levels()[MODULE], loggers.levels()[PACKAGE]) == ("TRACE", "ERROR")
    assert module.isEnabledFor(5)
    change(MODULE, "", Operation.DELETE)
    assert loggers.levels()[MODULE] == "ERROR"


@pytest.mark.parametrize(
    ("level", "named"),
    [(1, "TRACE"), (5, "TRACE"), (10, "DEBUG"), (15, "DEBUG"), (30, "WARN"), (50, "FATAL"), (90, "FATAL")],
)
def test_every_level_of_pythons_has_a_name_of_kafkas(module, level, named):
    module.setLevel(level)
    assert loggers.levels()[MODULE] == named


def test_the_root_is_told_and_set():
    before = logging.root.level
    try:
        change("root", "FATAL")
        assert loggers.levels()["root"] == "FATAL"
    finally:
        logging.root.setLevel(before)


@pytest.mark.parametrize(
    ("name", "level", "operation", "code", "said"),
    [
        ("no.such.logger", "INFO", Operation.SET, ErrorCode.INVALID_CONFIG, "there is no logger 'no.such.logger'"),
        ("no.such.logger", "", Operation.DELETE, ErrorCode.INVALID_CONFIG, "there is no logger"),
        (MODULE, "info", Operation.SET, ErrorCode.INVALID_CONFIG, "'info' is no level .* only TRACE, DEBUG, INFO"),
        (MODULE, "INFO", Operation.APPEND, ErrorCode.INVALID_REQUEST, "APPEND is not for levels"),
        (MODULE, "INFO", Operation.SUBTRACT, ErrorCode.INVALID_REQUEST, "SUBTRACT is not for levels"),
        ("root", "", Operation.DELETE, ErrorCode.INVALID_REQUEST, "can be set, and not be taken back"),
    ],
)
def test_what_is_refused_changes_nothing(module, name, level, operation, code, said):
    changes = [Change(MODULE, Operation.SET, "FATAL"), Change(name, operation, level)]
    with pytest.raises(ApiError, match=said) as refused:
        loggers.change_levels(changes, validate_only=False)
    assert refused.value.code is code
    assert module.level == logging.NOTSET
    assert "no.such.logger" not in logging.root.manager.loggerDict


def test_what_is_only_checked_changes_nothing(module):
    change(MODULE, "FATAL", validate_only=True)
    assert module.level == logging.NOTSET
