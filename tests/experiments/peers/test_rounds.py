"""Workers take turns."""

from experiments.peers import rounds


class FakeWorker:
    """A worker whose calls take a given time; it appends them to a log."""

    def __init__(self, peer: str, seconds: float, log: list):
        self.peer, self.seconds, self.log, self.used = peer, seconds, log, 0.0

    def call(self, method, work, calls):
        assert method == "time"
        self.log.append((self.peer, work, calls))
        self.used += self.seconds
        return self.seconds

    def processor_time(self):
        return self.used


def test_every_other_round_is_in_reverse_order(monkeypatch):
    monkeypatch.setattr(rounds, "SETTLE", 0.0)
    log: list = []
    first, second = FakeWorker("first", 0.01, log), FakeWorker("second", 0.3, log)
    turns = [
        rounds.Turn(first, "train"),
        rounds.Turn(second, "train"),
        rounds.Turn(first, "infer"),
    ]
    result = rounds.time_interleaved(turns, 3, sample=0.1)
    assert result.calls == {"first: train": 10, "second: train": 1, "first: infer": 10}
    forward = [("first", "train", 10), ("second", "train", 1), ("first", "infer", 10)]
    assert log[6:] == forward + forward[::-1] + forward
    assert result.samples["second: train"] == [0.3] * 3 and result.idle_load == 0.0


def test_a_later_launch_has_as_many_calls_in_a_sample(monkeypatch):
    monkeypatch.setattr(rounds, "SETTLE", 0.0)
    worker = FakeWorker("first", 0.01, [])
    turns = [rounds.Turn(worker, "train")]
    result = rounds.time_interleaved(turns, 1, sample=0.1, calls={"first: train": 7, "old": 2})
    assert result.calls == {"first: train": 7}
    assert worker.log == [("first", "train", 1), ("first", "train", 7)]  # after a warm-up
