"""A Prometheus of the test's own, with the project's rules made quick."""

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from sparklog.local.ports import free_port
from sparklog.testing.eventually import eventually

_RULES = Path(__file__).parents[2] / "conf" / "prometheus" / "alerts.yml"
_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: sparklog
    static_configs: [{{targets: {targets}}}]
"""


class Prometheus:
    """Scrapes ``targets`` (``host:port``) every second; an alert is raised as soon as its expression holds."""

    def __init__(self, folder, targets, limits=None):
        """``limits``: what takes the place of an alert's limit, for tests that cannot wait for it."""
        rules = re.sub(r"\bfor: \w+", "for: 0s", _RULES.read_text())
        for expression, quick in (limits or {}).items():
            assert rules.count(expression) == 1
            rules = rules.replace(expression, quick)
        (folder / "alerts.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(_CONFIG.format(targets=json.dumps(targets)))
        self._folder = folder
        self._url = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        arguments = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": self._folder / "series",
            "web.listen-address": self._url,
            "log.level": "warn",
        }
        command = ["prometheus", *(f"--{name}={value}" for name, value in arguments.items())]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        eventually(self._is_there, what=(self._folder / "prometheus.log"))
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def _is_there(self):
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return urllib.request.urlopen(f"http://{self._url}/-/ready", timeout=60).status == 200

    def _get(self, path, **query):
        url = f"http://{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def series(self, expression):
        """The value of each series that it answers, by its labels."""
        found = self._get("query", query=expression)["result"]
        return {frozenset(each["metric"].items()): float(each["value"][1]) for each in found}

    def number(self, expression):
        """The only one that it answers; None if it answers none."""
        found = self.series(expression)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def alerts(self, **labels):
        """The names of those that are raised with such labels, each with all the labels of one of them."""
        raised = [each["labels"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"]
        return {each["alertname"]: each for each in raised if labels.items() <= each.items()}
