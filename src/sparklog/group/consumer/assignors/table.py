"""The assignors by the names under which members ask for them."""

from __future__ import annotations

from sparklog.group.consumer.assignors.range import assign_ranges
from sparklog.group.consumer.assignors.spec import Assignor
from sparklog.group.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
