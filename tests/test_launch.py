"""The files in `launch/`: their syntax, the options that they pass, and the two that run here."""

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from experiments.config.configurations import parse
from tests.support.paths import ROOT
from tests.support.processes import environment, free_port
from tests.support.records import read_record

LAUNCH = ROOT / "launch"
SCRIPTS = [*sorted(LAUNCH.glob("*.sh")), LAUNCH / "slurm.sbatch"]
PAGE = (ROOT / "docs" / "many-machines.md").read_text().replace("\\\n", " ")
SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=1",
    "--batch-size=20",
]


def manifest(name: str) -> dict:
    return yaml.safe_load((LAUNCH / name).read_text())


def jobset_pod() -> dict:
    (workers,) = manifest("jobset.yaml")["spec"]["replicatedJobs"]
    return workers["template"]["spec"]["template"]["spec"]


def run_options(text: str) -> list[str]:
    """The options of `experiments.run` in a shell command, variables replaced by 1."""
    text = re.sub(r"\$\(echo [^)]*\)", "host", text.replace("\\\n", " "))
    text = re.sub(r"\$\{?#?\w+[^}\s\"]*\}?", "1", text.partition("experiments.run")[2])
    words = shlex.split(text.partition("||")[0])
    return [word for word in words if word.startswith("--")]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_shell_reads_the_scripts(path):
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    is_executable = bool(path.stat().st_mode & stat.S_IXUSR)
    assert is_executable == (path.name not in ("processes.sh", "slurm.sbatch"))


def commands() -> dict[str, str]:
    """The command that each file runs on the machines."""
    (container,) = jobset_pod()["containers"]
    return {
        "slurm.sbatch": (LAUNCH / "slurm.sbatch").read_text().partition("\nsrun ")[2],
        "jobset.yaml": container["command"][-1],
        "skypilot.yaml": manifest("skypilot.yaml")["run"],
    }


@pytest.mark.parametrize("name", commands())
def test_files_pass_options_that_exist(name):
    (config,) = parse(run_options(commands()[name]))
    assert config.distributed


@pytest.mark.parametrize(
    "command", [line for line in PAGE.splitlines() if "launch/" in line and "--study" in line]
)
def test_commands_of_the_page_name_files_and_options_that_exist(command):
    words = shlex.split(command)
    assert any((ROOT / word).is_file() for word in words)
    (config,) = parse([word for word in words if word.startswith("--")])
    assert config.studies == ("train",)


def test_slurm_warns_before_the_time_limit_and_queues_the_job_again():
    lines = (LAUNCH / "slurm.sbatch").read_text().splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert {"--signal=TERM@120", "--requeue", "--nodes=2"} <= set(directives)
    assert all(re.fullmatch(r"--[a-z-]+(=\S+)?", directive) for directive in directives)


def test_the_job_set_starts_as_many_pods_as_it_names_processes():
    document = manifest("jobset.yaml")
    assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    (workers,) = document["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    (config,) = parse(run_options(commands()["jobset.yaml"]))
    assert job["parallelism"] == job["completions"] == config.num_processes
    name, subdomain = document["metadata"]["name"], document["spec"]["network"]["subdomain"]
    assert config.coordinator == f"{name}-{workers['name']}-0-0.{subdomain}:9876"
    volumes = {volume["name"] for volume in jobset_pod()["volumes"]}
    (container,) = jobset_pod()["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_the_command_for_a_tpu_pod_reaches_all_workers(tmp_path):
    shown = tmp_path / "gcloud"
    shown.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shown.chmod(0o755)
    done = subprocess.run(
        [LAUNCH / "tpu_pod.sh", "--model=resnet50", "--dataset=folder:my images"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TPU": "pod", "ZONE": "zone"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert words[:6] == ["compute", "tpus", "tpu-vm", "ssh", "pod", "--zone=zone"]
    assert words[6] == "--worker=all"
    (config,) = parse(shlex.split(words[7].partition("experiments.run")[2]))
    assert (config.distributed, config.dataset) == (True, "folder:my images")


def launch(arguments: list[str | Path], **variables: str) -> subprocess.CompletedProcess:
    env = environment() | {"PORT": str(free_port()), "PYTHON": sys.executable} | variables
    return subprocess.run(
        arguments, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
def test_the_local_launcher_runs_processes(tmp_path):
    done = launch([LAUNCH / "local.sh", "2", *SMALL, f"--results={tmp_path}"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_record(tmp_path)["provenance"]["distributed"]["processes"] == 2


@pytest.mark.slow
def test_the_ssh_launcher_runs_a_process_on_each_host(tmp_path):
    """With a command in place of ssh that runs here what ssh would run on the host."""
    hosts = tmp_path / "hosts"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$1" >> {hosts}\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    results = tmp_path / "my results"
    arguments = [LAUNCH / "ssh.sh", "localhost 127.0.0.1", ROOT, *SMALL, f"--results={results}"]
    done = launch(arguments, SSH=str(ssh))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(hosts.read_text().split()) == ["127.0.0.1", "localhost"]
    assert read_record(results)["provenance"]["distributed"]["processes"] == 2


@pytest.mark.slow
def test_a_launcher_returns_the_exit_code_of_its_processes(tmp_path):
    done = launch([LAUNCH / "local.sh", "2", *SMALL, "--batch-size=21", f"--results={tmp_path}"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("batch size 21 cannot be used on 2 device(s)") == 2
