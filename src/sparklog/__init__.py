"""sparklog: a streaming log for people who live in PySpark."""

__version__ = "0.1.0"
