"""The alert rules and the board in ``conf``, against the numbers that there are and the page of alerts."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fix_programs import lack_of

from sparklog.metrics.families import FAMILIES, HISTOGRAM

LACK = lack_of("prometheus")
ROOT = Path(__file__).parents[2]
RULES = ROOT / "conf" / "prometheus" / "alerts.yml"
OTHERS = {"up", "process_open_fds", "process_max_fds", "process_cpu_seconds_total"}
"""What Prometheus and prometheus-client give."""


def rules():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def known():
    names = {each.name: set(each.labels) for each in FAMILIES}
    for each in FAMILIES:
        if each.kind == HISTOGRAM:
            names[f"{each.name}_bucket"] = {*each.labels, "le"}
    return names


def used(expr):
    """The names of the series in an expression, each with the labels by which it is chosen."""
    found = re.findall(r"\b((?:kafka|sparklog|process)_\w+|up)\b(?:\{([^}]*)\})?", re.sub(r"by \([^)]*\)", "", expr))
    return [(name, set(re.findall(r"(\w+)[=!]", labels))) for name, labels in found]


def expressions():
    yield from (each["expr"] for each in rules())
    board = json.loads((ROOT / "conf" / "grafana" / "sparklog.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])


def test_every_series_that_is_asked_for_is_told():
    asked = [each for expr in expressions() for each in used(expr)]
    assert len(asked) > 30
    for name, labels in asked:
        assert name in OTHERS or name in known(), name
        assert labels <= known().get(name, set()) | {"job", "instance", "topic"}, (name, labels)


def test_every_alert_has_its_section_and_says_what_is_wrong():
    page = (ROOT / "docs" / "alerts.md").read_text()
    named = [each["alert"] for each in rules()]
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == named
    for each in rules():
        assert each["annotations"]["runbook_url"] == f"docs/alerts.md#{each['alert'].lower()}"
        assert each["annotations"]["summary"].endswith(".")
        assert each["labels"]["severity"] in ("critical", "warning", "info")
        assert f"`{each['expr']}`" in page


def test_commands_of_the_page_are_there():
    from sparklog.cli.main import cli

    page = (ROOT / "docs" / "alerts.md").read_text()
    for line in re.findall(r"`sparklog ([^`]+)`", page):
        command: Any = cli
        for word in line.split():
            if not hasattr(command, "get_command") or not word.islower():
                break
            command = command.get_command(None, word)
            assert command is not None, line


def test_every_alert_is_tested_where_it_is_raised_and_where_it_is_not():
    raised, silent = set(), set()
    for each in yaml.safe_load(RULES.with_name("alerts_test.yml").read_text())["tests"]:
        for asked in each["alert_rule_test"]:
            (raised if asked.get("exp_alerts") else silent).add(asked["alertname"])
    assert raised == silent == {each["alert"] for each in rules()}


def test_every_alert_is_raised_by_a_real_prometheus_in_some_test():
    tests = ROOT / "tests" / "integration"
    named = "".join((tests / name).read_text() for name in ("test_alerts.py", "test_prometheus.py"))
    assert {each["alert"] for each in rules()} <= set(re.findall(r'"(Sparklog\w+)"', named))


def texts_of(title):
    """The expressions of a section of the page of metrics."""
    section = (ROOT / "docs" / "metrics.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```text\n(.*?)```", section, re.DOTALL)


def panel(title):
    """The expressions of a panel of the board, over five minutes."""
    board = json.loads((ROOT / "conf" / "grafana" / "sparklog.json").read_text())
    (found,) = (each for each in board["panels"] if each["title"] == title)
    return [each["expr"].replace("$__rate_interval", "5m") for each in found["targets"]]


@pytest.mark.skipif(bool(LACK), reason=LACK)
def test_processor_time_is_divided_among_requests(tmp_path):
    """600 requests a minute take 6 s of the loop, and 12 s of all threads; three quarters are of Fetch."""
    requests = 'kafka_network_requestmetrics_requests_total{instance="a", request="%s", version="9"}'
    loop = 'sparklog_request_loop_seconds_total{instance="a", request="%s"}'
    series = {
        requests % "Fetch": 400,
        requests % "Produce": 200,
        loop % "Fetch": 45,
        loop % "Produce": 15,
        'sparklog_loop_cpu_seconds_total{instance="a"}': 6,
        'process_cpu_seconds_total{instance="a", job="sparklog"}': 12,
    }
    of_the_page, of_apis = texts_of("Processor time of requests")
    of_the_loop, of_all_threads = panel("Processor time of a request")
    shares = [{"labels": '{request="Fetch"}', "value": 0.75}, {"labels": '{request="Produce"}', "value": 0.25}]
    expected = {of_the_page: 0.01, of_the_loop: 0.01, of_all_threads: 0.02}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"0+{step}x10"} for name, step in series.items()],
        "promql_expr_test": [
            *(
                {"expr": expr, "eval_time": "10m", "exp_samples": [{"labels": '{instance="a"}', "value": value}]}
                for expr, value in expected.items()
            ),
            {"expr": of_apis, "eval_time": "10m", "exp_samples": shares},
        ],
    }
    file = tmp_path / "expressions.yml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    subprocess.run(["promtool", "test", "rules", file], check=True)


@pytest.mark.skipif(bool(LACK), reason=LACK)
@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")],
    ids=" ".join,
)
def test_prometheus_takes_the_rules_and_raises_each_when_it_should(arguments):
    subprocess.run(["promtool", *arguments], check=True, cwd=RULES.parent)
