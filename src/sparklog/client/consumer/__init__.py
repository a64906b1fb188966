"""Reading topics: what is read and from where; ``fetch`` brings records, ``group`` shares partitions out."""
