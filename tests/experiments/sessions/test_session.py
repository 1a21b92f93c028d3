"""What a command prints at its end."""

import io

from rich.console import Console

from experiments import report
from experiments.config import RunConfig
from experiments.sessions import session


def test_brackets_in_the_results_folder_are_printed_as_they_are(tmp_path, monkeypatch):
    results, output = tmp_path / "run [red] [1]", io.StringIO()
    monkeypatch.setattr(report, "write_page", lambda folders, page: page)
    session.conclude(RunConfig(results=str(results)), [], Console(file=output, width=80))
    assert f"records in {results}, report: {results}/report.html\n" in output.getvalue()
