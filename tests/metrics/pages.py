"""A page of metrics, read by prometheus-client's own parser."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Page:
    """The samples of one page."""

    def __init__(self, text):
        self.families = list(text_string_to_metric_families(text))
        self._samples = {}
        for family in self.families:
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._samples, f"{key} is told twice"
                self._samples[key] = sample.value

    def value(self, name, **labels):
        """Of the sample with exactly these labels; None if there is none."""
        return self._samples.get((name, frozenset(labels.items())))

    def of(self, name):
        """The values of all samples of this name, by their labels."""
        return {labels: value for (each, labels), value in self._samples.items() if each == name}

    @property
    def names(self):
        return {name for name, _ in self._samples}


def collected(*collectors):
    """The page of these collectors alone."""
    from sparklog.metrics.exposition import Exposition

    page, parts = Exposition(), []
    for each in collectors:
        for _ in each.collect(page):
            pass
    for _ in page.encoding(parts):
        pass
    return Page(b"".join(parts).decode())


def get(url, token=None):
    """The status and the text that an HTTP GET gives."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
