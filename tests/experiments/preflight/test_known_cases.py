"""A case whose record exists is shown without compiling, unless its program has changed."""

import dataclasses
import json
import re

import pytest

from experiments.preflight import compiler as compilers
from experiments.preflight import compiler_process, targets, time_model
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileRequest
from experiments.records.units import readable
from tests.support.preflight import needs_libtpu, run

V5E = targets.target("tpu-v5e-1")


@needs_libtpu
def test_the_same_case_is_not_compiled_again(tmp_path, cache_folder):
    options = ("--target=tpu-v5e-1", "--model=logistic", "--fixed-batch")
    run(tmp_path, *options)
    (cached,) = cache_folder.glob("[!p]*.json")
    assert json.loads(cached.read_text())["state"] == "compiled"
    assert len(run(tmp_path, *options)[1]) == 1, "the record exists"
    _, loaded = run(tmp_path, *options, "--batch-size=128", "--price=2/h", "--force")
    assert [record.provenance["compilations"] for record in loaded] == [1, 1], "forced"
    spec = ProgramSpec("logistic", 128, "jit", "float32", 28)
    with compilers.Compiler(V5E, time_limit=1.0) as compiler:
        assert compiler(CompileRequest(spec, V5E, counts=True)).state == "compiled"
        assert compiler.compilations == 0, "cached: no process was started"


@needs_libtpu
def test_a_known_case_is_shown_at_another_price_without_compiling(tmp_path, capfd, monkeypatch):
    options = ("--target=tpu-v5e-4", "--model=logistic", "--strategy=data", "--fixed-batch")
    _, (first,) = run(tmp_path, *options, "--price=1/h")
    assert first.metrics["price_per_hour"] == 4.0  # of four chips
    capfd.readouterr()
    monkeypatch.setattr(compiler_process, "serve", None)  # no compiler
    code, (again,) = run(tmp_path, *options, "--price=3/h")
    assert code == 0 and again == first, "the file keeps its prices"
    output = capfd.readouterr().out
    assert "at $12 an hour" in output
    cost = readable("cost_per_epoch_estimate", 3 * first.metrics["cost_per_epoch_estimate"])
    assert re.search(rf"costs +{re.escape(cost)} .* an epoch of", output)


@needs_libtpu
def test_a_known_case_is_estimated_by_the_current_time_model(tmp_path, capfd, monkeypatch):
    options = ("--target=tpu-v5e-1", "--model=logistic", "--fixed-batch", "--json")
    run(tmp_path, *options)
    fit = time_model.saved_fit()
    slow = {family: values | {"launch": 1.0} for family, values in fit.parameters.items()}
    slow_fit = dataclasses.replace(fit, parameters=slow)
    monkeypatch.setattr(time_model, "saved_fit", lambda: slow_fit)
    monkeypatch.setattr(compiler_process, "serve", None)  # no compiler
    capfd.readouterr()
    run(tmp_path, *options)
    (shown,) = json.loads(capfd.readouterr().out)["records"]
    launches = sum(row[-1] for row in shown["provenance"]["operations"])
    assert shown["metrics"]["step_time_estimate"] == pytest.approx(launches, rel=0.01)


def test_a_record_without_operations_is_made_again(tmp_path):
    options = ("--target=cpu", "--model=logistic", "--fixed-batch")
    run(tmp_path, *options)
    (path,) = (tmp_path / "results" / "preflight").glob("*.json")
    saved = json.loads(path.read_text())
    del saved["provenance"]["operations"]
    path.write_text(json.dumps(saved))
    _, loaded = run(tmp_path, *options)
    assert ["operations" in record.provenance for record in loaded] == [False, True]


def test_a_changed_program_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    """The same command, and other flags or another recipe: the record of before does not hold."""
    options = ("--target=cpu", "--model=logistic", "--fixed-batch")
    run(tmp_path, *options)
    assert len(run(tmp_path, *options)[1]) == 1
    with monkeypatch.context() as changed:
        changed.setattr(compilers.Compiler, "program", lambda self, request: "another program")
        assert len(run(tmp_path, *options)[1]) == 2
    with monkeypatch.context() as changed:
        changed.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
        _, loaded = run(tmp_path, *options)
    assert [record.settings.get("xla_flags") for record in loaded] == [
        None,
        None,
        "--xla_cpu_enable_fast_math=false",
    ]
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    _, loaded = run(tmp_path, *options)
    names = [record.settings.get("jax_default_matmul_precision") for record in loaded]
    assert sorted(map(str, names)) == ["None", "None", "None", "highest"]


def test_a_case_is_the_same_wherever_libtpu_is_installed(tmp_path, monkeypatch):
    """JAX itself sets the path of the library, as of an environment in a user's folder."""
    options = ("--target=cpu", "--model=logistic", "--fixed-batch")
    _, (record,) = run(tmp_path, *options)
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(tmp_path / "libtpu.so"))
    _, loaded = run(tmp_path, *options)
    assert loaded == [record] and str(tmp_path) not in json.dumps(record.settings)
