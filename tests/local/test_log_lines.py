"""What is read from a broker's log, in both formats."""

import io
import logging

import pytest

from sparklog.cli.logs import _FORMAT, JsonLines
from sparklog.local.log_lines import has_errors, news_in

FORMATTERS = {"text": logging.Formatter(_FORMAT), "json": JsonLines()}


@pytest.fixture(params=FORMATTERS)
def lines(request):
    """Writes a record as a broker does and returns the text."""

    def write(level, logger, message):
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(FORMATTERS[request.param])
        handler.handle(logging.LogRecord(logger, level, "", 0, message, None, None))
        return stream.getvalue()

    return write


def test_what_is_for_the_operator_is_found(lines):
    said = 'log a-0 "lost" {2} records, "x\\'
    others = lines(logging.WARNING, "sparklog.replica.manager", "b") + lines(logging.INFO, "sparklog.log.cut", "c")
    text = others + lines(logging.WARNING, "sparklog.log.cut", said)
    assert news_in(text + lines(logging.WARNING, "sparklog.log.directories.room", "full")) == [said, "full"]


def test_a_line_that_a_full_disk_cut_is_passed_over():
    """The next one, when there was room again, went on where it had ended."""
    record = logging.LogRecord("sparklog.log.cut", logging.WARNING, "", 0, "lost", None, None)
    line = JsonLines().format(record) + "\n"
    assert news_in(line[: line.index('"lost"')] + line + line) == ["lost"]


@pytest.mark.parametrize("level", [logging.ERROR, logging.CRITICAL])
def test_an_error_is_one(lines, level):
    claimed = lines(logging.WARNING, "sparklog.net.server", '2026-01-01 00:00:00 ERROR "level": "ERROR", ')
    assert not has_errors(claimed)
    assert has_errors(claimed + lines(level, "sparklog.net.server", "x"))
