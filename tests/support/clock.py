"""A clock for tests of what samples over time."""

NEVER = 1e6  # seconds between samples: only those at the bounds of phases


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
