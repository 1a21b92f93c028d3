"""A fake clock for tests of code that times calls."""

import itertools


class CallClock:
    """A clock that advances only during the calls that it makes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, *seconds: float, note=None):
        """A call that takes these seconds, one after the other, and then always the last."""
        durations = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def run():
            self.now += next(durations)
            if note:
                note()

        return run
