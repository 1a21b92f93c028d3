"""The cache of compiled programs: what is kept, under which key, and what a damaged one costs."""

import dataclasses
import errno
import functools
from pathlib import Path

from experiments.preflight import cache, targets
from experiments.preflight import compiler as compilers
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileRequest, CompileResult

CPU = targets.target("cpu")
SMALL = ProgramSpec("logistic", 128, "jit", "float32", 28)


def test_a_cached_result_needs_no_process_and_a_fresh_one_does():
    request = CompileRequest(SMALL, CPU)
    with compilers.Compiler(CPU, time_limit=60.0) as compiler:
        first = compiler(request)
        assert first.state == "compiled" and compiler.compilations == 1
    with compilers.Compiler(CPU, time_limit=1e-3) as compiler:
        assert compiler(request) == first and compiler.compilations == 0
    with compilers.Compiler(CPU, time_limit=60.0, fresh=True) as compiler:
        assert compiler(request).memory == first.memory and compiler.compilations == 1


def test_a_damaged_cache_is_compiled_again(cache_folder):
    request = CompileRequest(SMALL, CPU)
    with compilers.Compiler(CPU, time_limit=60.0) as compiler:
        first, count = compiler(request), 1
        for content in ("", "{", "[]", "null", '{"state": "compiled"}', "\x00"):
            for file in cache_folder.iterdir():
                file.write_text(content)
            again, count = compiler(request), count + 1
            assert again.memory == first.memory and compiler.compilations == count, content
            assert compiler(request) == again and compiler.compilations == count, "it was mended"


def test_an_unusable_cache_is_one_line_and_no_failure(cache_folder):
    cache_folder.write_text("a file in place of the folder")
    with compilers.Compiler(CPU, time_limit=60.0) as compiler:
        assert compiler(CompileRequest(SMALL, CPU)).state == "compiled"
        assert "cannot be kept in" in compiler.cache.problem and "\n" not in compiler.cache.problem


def test_a_full_disk_leaves_nothing_in_the_cache(cache_folder, monkeypatch):
    def no_room(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_room)
    results = cache.ResultCache()
    results.keep_result(CompileRequest(SMALL, CPU), "hash", CompileResult("compiled"))
    assert "(No space left on device): the next run compiles again" in results.problem
    assert [*cache_folder.iterdir()] == []


def test_nothing_is_kept_once_the_sources_have_changed(cache_folder, monkeypatch, tmp_path):
    """The process has imported others than those of the files."""
    source = tmp_path / "worker.py"
    source.write_text("first = 1")
    monkeypatch.setattr(cache, "_RESULT_SOURCES", (str(source),))
    monkeypatch.setattr(cache, "_imported_sources", functools.cache(cache._digests_of_sources))
    request, result = CompileRequest(SMALL, CPU), CompileResult("compiled", seconds=1.0)
    results = cache.ResultCache()
    results.keep_result(request, "hash", result)
    assert results.result(request, "hash") == result and results.problem == ""
    source.write_text("second = 2")
    results.keep_result(request, "another hash", result)
    assert results.result(request, "another hash") is None
    assert "the sources of this project have changed" in results.problem


def test_flags_of_the_compiler_are_part_of_what_was_compiled(monkeypatch):
    request, result = CompileRequest(SMALL, CPU), CompileResult("compiled", seconds=1.0)
    cache.ResultCache().keep_result(request, "hash", result)
    assert cache.ResultCache().result(request, "hash") == result
    assert cache.ResultCache().result(request, "another hash") is None
    for name in (*cache.FLAGS, "TPU_LIBRARY_PATH"):
        with monkeypatch.context() as flags:
            flags.setenv(name, "--some_flag=1")
            assert cache.ResultCache().result(request, "hash") is None


def test_a_program_is_known_by_its_lowered_text(tmp_path):
    """Sixteen more classes are another program; the same one has the same hash anywhere."""
    with compilers.Compiler(CPU, time_limit=60.0) as compiler:
        first = compiler.program(CompileRequest(SMALL, CPU))
        other = dataclasses.replace(SMALL, num_classes=26)
        assert compiler.program(CompileRequest(other, CPU)) != first
    with compilers.Compiler(CPU, time_limit=60.0, folder=tmp_path / "none") as compiler:
        assert compiler.program(CompileRequest(SMALL, CPU)) == first
        assert compiler.compilations == 0 and len(first) == 24


def test_a_users_model_is_lowered_every_time():
    """It may import files that have changed."""
    spec = dataclasses.replace(SMALL, model_digest="digest")
    results = cache.ResultCache()
    results.keep_program(CompileRequest(spec, CPU), "hash")
    assert results.program(CompileRequest(spec, CPU)) == ""
    results.keep_program(CompileRequest(SMALL, CPU), "hash")
    assert results.program(CompileRequest(SMALL, CPU)) == "hash"
