"""What is read out of the reports of other projects' suites, and what counts as a difference."""

import json
from pathlib import Path

import pytest
from compat.suites.foreign import run_bounded
from compat.suites.librdkafka import names_of_tests
from compat.suites.outcomes import Comparison, Outcome, named_in, of_junit, of_librdkafka

from sparklog.testing.eventually import eventually

PASSED, FAILED, SKIPPED, UNENDED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.UNENDED


def test_a_junit_report_is_read(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="m.C" name="fine"/>
        <testcase classname="m" name="wrong"><failure message="x"/></testcase>
        <testcase classname="m" name="broken"><error/></testcase>
        <testcase classname="m" name="left[1]"><skipped/></testcase>
        <testcase classname="m" name="twice"><error/></testcase>
        <testcase classname="m" name="twice"/>
        </testsuite></testsuites>"""
    )
    outcomes = {"m.C::fine": PASSED, "m::wrong": FAILED, "m::broken": FAILED, "m::left[1]": SKIPPED, "m::twice": FAILED}
    assert of_junit(report) == outcomes


@pytest.mark.parametrize("text", [None, "", "<testsuites><testcase"])
def test_half_a_junit_report_is_none(tmp_path, text):
    report = tmp_path / "report.xml"
    if text is not None:
        report.write_text(text)
    assert of_junit(report) == {}


def test_a_report_of_librdkafka_is_read(tmp_path):
    report = tmp_path / "report.json"
    states = {"0001_a": "PASSED", "0002_b": "FAILED", "0003_c": "SKIPPED", "0004_d": "RUNNING"}
    text = json.dumps({"tests": {name: {"state": state, "extra": "a#b"} for name, state in states.items()}})
    report.write_text(text.replace("a#b", "a\tb"))
    expected = {"0001_a": PASSED, "0002_b": FAILED, "0003_c": SKIPPED, "0004_d": UNENDED, "0005_e": SKIPPED}
    assert {name: of_librdkafka(report, name) for name in expected} == expected
    report.write_text(text[:-5])
    assert of_librdkafka(report, "0001_a") is UNENDED
    assert of_librdkafka(tmp_path / "none", "0001_a") is UNENDED


def test_only_what_passes_on_kafka_and_not_here_is_a_difference():
    on_kafka = {"both": PASSED, "theirs": PASSED, "known": PASSED, "gone": PASSED, "mended": PASSED, "neither": FAILED}
    here = {"both": PASSED, "theirs": SKIPPED, "known": FAILED, "mended": PASSED, "neither": FAILED, "ours": PASSED}
    found = Comparison(on_kafka, here, frozenset({"known", "mended"}))
    assert found.broken == {"theirs": "skipped", "gone": "not run"}
    assert found.mended == ["mended"]
    assert found.summary == "5 of 6 pass on Kafka, 2 of these here; passing here only: 1"


def test_a_list_has_comments(tmp_path):
    (tmp_path / "list").write_text("# why\n\n0001_a\n  0081_b/part \n")
    assert named_in(tmp_path / "list") == {"0001_a", "0081_b/part"}


def test_what_does_not_end_is_killed_with_its_children(tmp_path):
    output = tmp_path / "output"
    script = "echo begun; sleep 600 & echo $!; wait"
    assert run_bounded(["sh", "-c", script], tmp_path, {}, output, timeout_s=1) is None
    begun, _, child = output.read_text().strip().partition("\n")
    assert begun == "begun"
    eventually(lambda: not _runs(int(child)), timeout=30)


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_exit_status_is_told(tmp_path):
    assert run_bounded(["sh", "-c", 'exit "$CODE"'], tmp_path, {"CODE": "3"}, tmp_path / "output", timeout_s=60) == 3


REGISTRY = """
struct test tests[] = {
    _TEST(0001_plain, 0),
    _TEST(0002_local, TEST_F_LOCAL),
    _TEST(0003_costly, 0, TEST_BRKVER(0, 11, 0, 0), _THRES(.ucpu = 40.0, .scpu = 8.0)),
    _TEST(0004_other, 0, .scenario = "noautocreate"),
    _TEST(0005_either, 0, .scenario = "default,noautocreate"),
    _TEST(0006_newer, 0, TEST_BRKVER(4, 2, 0, 0)),
    _TEST(0007_manual, TEST_F_MANUAL),
    _TEST(0008_known, TEST_F_KNOWN_ISSUE, .extra = "a"),
    _TEST(0009_windows, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0081_admin, 0),
};
"""
PARTS = """
static void do_test_one(const char *what, int count) {
        SUB_TEST_QUICK("%s", what);
}

static void do_test_two(void) { SUB_TEST(); }

static void do_test_helper(void) {
        rd_sleep(1);
}
"""


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (
            "default",
            "0001_plain 0003_costly 0005_either 0009_windows 0081_admin/do_test_one 0081_admin/do_test_two",
        ),
        ("noautocreate", "0004_other 0005_either"),
    ],
)
def test_the_tests_of_a_scenario_that_need_a_broker(tmp_path, scenario, expected):
    (tmp_path / "test.c").write_text(REGISTRY)
    (tmp_path / "0081-admin.c").write_text(PARTS)
    assert list(names_of_tests(tmp_path, scenario)) == expected.split()
