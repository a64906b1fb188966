"""The server's assignors: pure functions from a Spec to each member's share, by the names that members ask for.

``config/broker.py`` has these names again, as what ``group.consumer.assignors`` may be.
"""

from __future__ import annotations

from sparklog.group.consumer.assignors.range import assign_ranges
from sparklog.group.consumer.assignors.spec import Assignor
from sparklog.group.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
