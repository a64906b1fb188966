"""``docs/protocol.md``: what is served, told by the registry itself.

``python -m sparklog.broker.protocol_page > docs/protocol.md`` writes it anew.
"""

from __future__ import annotations

import sys

from sparklog.broker.registry import HANDLERS, Handler
from sparklog.protocol.messages import is_flexible

_HEAD = """\
# Protocol

The APIs that a broker serves, in Kafka 3.9's numbers and versions. ApiVersions offers exactly these; a request for
another API or version ends the connection. Made from the registry: `python -m sparklog.broker.protocol_page`.

| number | API | versions | flexible from | what it does here |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The whole file."""
    return _HEAD + "".join(f"{_row(HANDLERS[number])}\n" for number in sorted(HANDLERS)).replace("``", "`")


def _row(handler: Handler) -> str:
    versions = handler.versions
    flexible = next((str(each) for each in versions if is_flexible(handler.api, each)), "none")
    name, _, promise = handler.promise.partition(": ")
    first, last = versions.start, versions.stop - 1
    span = str(first) if first == last else f"{first} to {last}"
    return f"| {handler.api.value} | {name} | {span} | {flexible} | {promise} |"


if __name__ == "__main__":
    sys.stdout.write(page())
