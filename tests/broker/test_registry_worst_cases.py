"""The benchmark of stalls asks the worst of every API that is served."""

from pathlib import Path

import pytest

from sparklog.broker.registry import HANDLERS
from sparklog.protocol.api_key import ApiKey


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    from benchmarks.stalls import table

    return table


def test_each_api_that_is_served_has_a_worst_case_or_a_reason_why_not(table):
    asked = {case.api for case in (*table.cases(), *table.guarded_cases()) if case.api is not None}
    served = {ApiKey(number) for number in HANDLERS}
    assert asked | table.WITHOUT.keys() == served
    assert not asked & table.WITHOUT.keys()


def test_no_two_worst_cases_have_one_name(table):
    names = [case.name for case in (*table.cases(), *table.guarded_cases())]
    assert len(set(names)) == len(names)
