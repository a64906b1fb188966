"""Lets ``format("sparklog")`` find its data source with nothing registered by hand."""

from sparklog.spark.source import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
