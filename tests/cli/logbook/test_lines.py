"""Lines of the log are found in the source, whatever the form in which they are written."""

import ast
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.logbook import lines
from sparklog.cli.logbook.lines import lines_of, log_lines

MODULE = """
import logging
_logger = logging.getLogger(__name__)
_TEXT = "of %s, set above"
_logger.warning("outside of functions")
class Some:
    def work(self, text, level):
        _logger.info("nobody has to read this")
        _logger.error("%d of %s failed: "
            "%.1f %% of all", 1, 2, 3.0)
        _logger.exception(f"it failed at {text}: {level!r}")
        _logger.warning("one" if text else "another", text)
        _logger.warning(_TEXT, text)
        _logger.log(logging.INFO if text else logging.WARNING, "perhaps %r", text)
        _logger.log(logging.DEBUG, "never")
        _logger.log(level, "as grave as is said")
        self._warnings.warn("kind", f"refused {text}", most=1)
        self._warnings.inform("kind", "of no matter")
        self._warnings.repeat("kind", text)
        future.exception()
        parser.error("no line of the log")
        async def within():
            told = "set later"
            _logger.critical(told)
        told = "set after it"
"""
EXPECTED = [
    ("WARNING", "outside of functions"),
    ("ERROR", "… of … failed: … % of all"),
    ("ERROR", "it failed at …: …"),
    ("WARNING", "one"),
    ("WARNING", "another"),
    ("WARNING", "of …, set above"),
    ("WARNING", "perhaps …"),
    ("WARNING", "as grave as is said"),
    ("WARNING", "refused …"),
    ("WARNING", "…"),
    ("CRITICAL", "set later"),
]


def test_each_form_is_found():
    found = lines_of("some.module", ast.parse(MODULE))
    assert [(*each.levels, each.text) for each in found] == EXPECTED
    assert found[0].logger == "sparklog.some.module"


def test_a_line_whose_text_is_hidden_is_refused():
    source = "_logger.warning(told())"
    with pytest.raises(ValueError, match="module, line 1: the text"):
        lines_of("module", ast.parse(source))


def _loggers(tree):
    """The names of what writes lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = ast.unparse(node.value.func)
            if made in ("logging.getLogger", "getLogger", "RateLimitedLogger"):
                yield made, ast.unparse(node.targets[0]).rpartition(".")[2]


def test_no_logger_has_a_name_that_is_not_looked_for():
    source = Path(sparklog.__file__).parent
    texts = [path.read_text() for path in source.rglob("*.py")]
    made = [ast.parse(each) for each in texts if "getLogger(" in each or "RateLimitedLogger(" in each]
    found = {each for tree in made for each in _loggers(tree)}
    unknown = {name for made, name in found if name not in lines._LOGGERS | lines._RATE_LIMITED}
    assert unknown == {"root"}  # of which only the level is looked at
    assert {name for made, name in found if made == "RateLimitedLogger"} <= lines._RATE_LIMITED


def test_a_line_names_what_it_is_about_or_is_a_sentence():
    nameless = {each.text for each in log_lines() if "…" not in each.text and len(each.text.split()) < 3}
    assert nameless == {"unexpected error"}  # its traceback is about it
