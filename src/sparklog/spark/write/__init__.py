"""Writing exactly once: tasks write, the driver decides, and what was decided is finished."""
