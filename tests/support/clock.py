"""A fake clock for tests of code that samples over time."""

NEVER = 1e6  # seconds between periodic samples: only phase boundaries are sampled


class Clock:
    """A clock that advances only when a test sets `now`, in seconds."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
