"""How a raw table may be written."""

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.lake.delta.raw_table import RawTable


@pytest.mark.parametrize(
    ("more", "why"), [({"partition_by": ("price",)}, "not by 'price'"), ({"compression": "brotli"}, "not 'brotli'")]
)
def test_what_no_table_has(more, why):
    with pytest.raises(DataSourceError, match=why):
        RawTable("x", **more)
