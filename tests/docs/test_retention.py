"""The policy on the page about retention is one."""

import re
from pathlib import Path
from typing import Any

from sparklog.config.definition import describe
from sparklog.config.topic import TopicConfig
from sparklog.log.retention import SegmentView
from sparklog.structs import TopicPartition

PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
HOUR_MS = 3_600_000


def test_the_policy_of_the_page_gives_up_old_segments_at_night():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    policy = found["ClosedHours"](TopicPartition("t", 0), describe(TopicConfig(retention_ms=HOUR_MS)))
    midnight = 100 * 24 * HOUR_MS
    segments = [SegmentView(n, n + 1, 1, midnight - age * HOUR_MS) for n, age in enumerate((5, 2, 0))]
    assert policy.give_up(segments, midnight) == 2
    assert policy.give_up(segments, midnight + 8 * HOUR_MS) == 0
    assert policy.give_up([], midnight) == 0


def test_the_page_names_the_settings_with_their_defaults():
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| (\S+) \|", PAGE.read_text(), re.MULTILINE))
    defaults = describe(TopicConfig())
    assert {name: "" if text == "(empty)" else text for name, text in rows.items()} == {
        name: text
        for name, text in defaults.items()
        if ("retention." in name and "delete" not in name) or ".offload." in name
    }
