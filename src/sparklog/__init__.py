"""sparklog: a streaming log for people who live in PySpark."""

import os

from sparklog import compiled

__version__ = "0.1.0"

not_compiled = compiled.choose(os.environ.get(compiled.VARIABLE))
"""Why the modules that can be compiled are not; None if they are."""
