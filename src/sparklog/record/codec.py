"""Single operations of the codec in use, for callers that do one very often: called without a step between.

What they take and give: ``_impl.abc.Codec``.
"""

from __future__ import annotations

from sparklog.record._impl import codec

murmur2 = codec.murmur2
write_record = codec.write_record
