"""Tests of ``--print-launch``: the files are valid, and run the command and its merge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from command_line import run
from hashes import hashes
from helpers import RIGHT, WRONG
from jobs_hub import JobsHub, serve_jobs
from slurm import JOBS_VARIABLE, install_slurm, read_jobs

from fsdpo_data.cli.launch import DATA_SCRIPTS, TRAIN_SCRIPTS, launch_script, quote_word
from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.prompts import get_template
from fsdpo_train.cli.app import main as train

TOKEN = "hf_token_of_this_test"
#: Folders of programs: of this Python, and of the system.
PROGRAMS = f"{Path(sys.executable).parent}:{os.defpath}"
#: Environment of a machine.
MACHINE = {"PATH": PROGRAMS, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
#: A folder whose name bash would change.
OUT = "a b/it's [1]"
#: Python of the environment with SkyPilot.
SKYPILOT_PYTHON = Path(__file__).parents[3] / ".venv-skypilot" / "bin" / "python"
SCHEMA_FILE = Path(__file__).parents[2] / "data" / "kuberay_rayjob_schema.json"
#: Words that a shell, a line of a script, or YAML could change.
WORDS = ["a b", "it's", "[1]", "$HOME", "`id`", 'q"', "\\", "#", "a: b", "é", "\n", "\t", "\u2028"]


def check_syntax(script: str) -> str:
    """Return a script that bash can parse."""
    ran = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return script


def print_launch(capsys: pytest.CaptureFixture[str], launcher: str, *arguments: str) -> str:
    """Return the file that ``fsdpo-data`` prints."""
    code, output, err = run(capsys, *arguments, "--print-launch", launcher)
    assert code == 0, err
    return output


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a command with recorded samples, without its ``--out``."""
    folder = tmp_path_factory.mktemp("a [1]")
    template = get_template("problem")
    questions = [f"What is 20 + 22, the {index}th time?" for index in range(4)]
    problems = [{"question": question, "answer": "42"} for question in questions]
    samples = [asdict(Completion(text, "stop", 9, seconds=0.1)) for text in (RIGHT, WRONG)]
    recorded = [{"prompt": template.render(text), "completions": samples} for text in questions]
    for name, rows in {"problems": problems, "recorded": recorded}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--problems", folder / "problems.jsonl", "--samples", 2, "--template", "problem"]
    replay = ["--engine", "replay", "--replay", folder / "recorded.jsonl"]
    return ["build", *map(str, [*options, *replay])]


@pytest.fixture(scope="module")
def local_hashes(build: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the digests of the dataset that the command writes on one machine."""
    folder = tmp_path_factory.mktemp("local")
    command = ["fsdpo-data", *build, "--out", OUT]
    subprocess.run(command, cwd=folder, env=MACHINE, check=True, capture_output=True)
    return hashes(folder / OUT)


@pytest.mark.parametrize("launcher", ["torchrun", "sbatch"])
def test_training_is_launched_by_torchrun(launcher: str) -> None:
    arguments = [
        "dpo",
        "runs/pairs",
        "--out",
        "runs/it's",
        "--print-launch",
        launcher,
        "--lr",
        "1e-6",
    ]
    script = check_syntax(launch_script(TRAIN_SCRIPTS, launcher, "fsdpo-train", arguments))
    assert "-m fsdpo_train dpo runs/pairs --out 'runs/it'\"'\"'s' --lr 1e-6" in script
    assert "torchrun --nnodes" in script and "print-launch" not in script


def test_a_word_stays_one_line_and_the_same_word() -> None:
    line = " ".join(map(quote_word, WORDS))
    assert "\n" not in line and line.isprintable()
    ran = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    assert ran.stdout.decode().split("\0")[:-1] == WORDS


def test_an_array_merges_and_continues_after_a_failure(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    build: list[str],
    local_hashes: dict[str, str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    script = print_launch(capsys, "sbatch", *build, "--shard=1/2", "--out", OUT)
    assert TOKEN not in check_syntax(script)
    install_slurm(tmp_path)
    environment = {**MACHINE, "PATH": f"{tmp_path}:{PROGRAMS}", JOBS_VARIABLE: str(tmp_path)}

    def submit() -> None:
        command = ["bash", "-c", script]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    shards = tmp_path / f"{OUT}-shards"
    shards.mkdir(parents=True)
    (shards / "2").write_text("a file in place of a directory")  # the second shard fails
    submit()
    assert read_jobs(tmp_path) == {"1": {"1": "COMPLETED", "2": "FAILED"}, "2": {}}
    assert not (tmp_path / OUT).exists()
    (shards / "2").unlink()
    finished = hashes(shards / "1")
    submit()
    assert read_jobs(tmp_path)["3"] == {"1": "COMPLETED", "2": "COMPLETED"}
    assert hashes(shards / "1") == finished
    assert hashes(tmp_path / OUT) == local_hashes


@pytest.mark.proof
def test_jobs_of_the_hub_merge_and_continue_after_a_failure(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    build: list[str],
    local_hashes: dict[str, str],
) -> None:
    script = print_launch(capsys, "hf-jobs", *build, "--out", OUT)
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    (bucket / "fsdpo-0.1.0-py3-none-any.whl").touch()
    pip = tmp_path / "pip"  # the jobs use the packages of this test
    pip.write_text('#!/bin/sh\ntest -e "${3%%\\[*}"\n')
    pip.chmod(0o755)
    shards = bucket / f"{OUT}-shards"
    shards.mkdir(parents=True)
    (shards / "2").write_text("a file in place of a directory")  # the second shard fails
    image = {**MACHINE, "PATH": f"{tmp_path}:{PROGRAMS}"}
    with serve_jobs(JobsHub(bucket, image)) as hub:
        settings = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home")}
        environment = {**MACHINE, "HF_HUB_DISABLE_TELEMETRY": "1", **settings}

        def submit() -> int:
            command = ["bash", "-c", check_syntax(script)]
            return subprocess.run(command, env=environment, capture_output=True).returncode

        assert submit() != 0
        assert hub.stages == ["COMPLETED", "ERROR"], hub.logs
        assert not (bucket / OUT).exists()
        (shards / "2").unlink()
        assert submit() == 0
        assert hub.stages[2:] == ["COMPLETED"] * 3, hub.logs
    assert hashes(bucket / OUT) == local_hashes
    shard, *_, merge = hub.jobs
    assert (shard["flavor"], merge["flavor"]) == ("a100-large", "cpu-upgrade")
    assert shard["secrets"] == {"HF_TOKEN": TOKEN}  # from the environment
    assert TOKEN not in script + json.dumps([shard["command"], shard["environment"]])


def check_rayjob(manifest: dict[str, Any]) -> None:
    """Check a RayJob against the schema of its resource."""
    jsonschema.validate(manifest, json.loads(SCHEMA_FILE.read_text()))


def test_kuberay_accepts_the_manifest_and_runs_the_words_of_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--out", *WORDS[:1], "--template", "\n".join(WORDS)]
    text = launch_script(DATA_SCRIPTS, "kuberay", "fsdpo-data", ["build", "--engine=vllm", *words])
    config_map, job = yaml.safe_load_all(text)
    check_rayjob(job)
    volumes = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"]
    assert {"name": "launch", "configMap": {"name": config_map["metadata"]["name"]}} in volumes
    assert job["spec"]["entrypoint"] == "bash /launch/run.sh"
    script = config_map["data"]["run.sh"].replace("cd /data", f"cd '{tmp_path}'")
    (tmp_path / "fsdpo-data").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    (tmp_path / "fsdpo-data").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.defpath}"}
    bash = str(shutil.which("bash"))
    ran = subprocess.run([bash, "-c", script], env=environment, capture_output=True, check=True)
    expected = ["build", *words, "--engine", "ray", "--resume"]
    assert ran.stdout.decode().split("\0")[:-1] == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "entryPoint"], "bash run.sh"),
        (["spec", "backoffLimit"], "2"),
        (["spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-gpus"], 0),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "template", "spec"], {}),
    ],
)
def test_the_schema_refuses_faults_of_a_manifest(path: list[Any], value: object) -> None:
    text = launch_script(DATA_SCRIPTS, "kuberay", "fsdpo-data", ["build", "--out", "runs/a"])
    _, job = yaml.safe_load_all(text)
    check_rayjob(job)
    parent = job
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check_rayjob(job)


@pytest.mark.proof
def test_a_pipeline_of_skypilot_runs_shards_and_then_the_merge(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    build: list[str],
    local_hashes: dict[str, str],
) -> None:
    text = print_launch(capsys, "skypilot", *build, "--out", OUT)
    _, shards, merge = yaml.safe_load_all(text)
    for rank in range(shards["num_nodes"]):
        run_task(shards, tmp_path, rank)
    run_task(merge, tmp_path, 0)
    assert hashes(tmp_path / OUT) == local_hashes


def run_task(task: dict[str, Any], bucket: Path, rank: int) -> None:
    """Run the commands of a SkyPilot task on one node, in the folder of its bucket."""
    script = task["run"].replace("cd /data", f"cd '{bucket}'")
    variables = {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": str(task.get("num_nodes"))}
    environment = {**MACHINE, **variables}
    subprocess.run(["bash", "-c", script], env=environment, check=True, capture_output=True)


#: Prints the tasks of a file as SkyPilot reads them for `sky jobs launch`.
READ_TASKS = """
import json, sys
from sky.utils import dag_utils
tasks = dag_utils.load_chain_dag_from_yaml(sys.argv[1]).tasks
print(json.dumps([[task.name, task.num_nodes, task.run, list(task.secrets)] for task in tasks]))
"""


@pytest.mark.proof
@pytest.mark.skipif(not SKYPILOT_PYTHON.exists(), reason="needs .venv-skypilot of `make proof`")
def test_skypilot_reads_the_files(tmp_path: Path) -> None:
    def read_tasks(text: str) -> list[list[Any]]:
        file = tmp_path / "tasks.yaml"
        file.write_text(text)
        environment = {"PATH": PROGRAMS, "HOME": str(tmp_path)}
        command = [SKYPILOT_PYTHON, "-c", READ_TASKS, file]
        return list(json.loads(subprocess.check_output(command, env=environment)))

    arguments = ["build", "--template", "\n".join(WORDS), "--out", OUT]
    text = launch_script(DATA_SCRIPTS, "skypilot", "fsdpo-data", arguments)
    _, *tasks = yaml.safe_load_all(text)
    assert read_tasks(text) == [
        ["shards", 2, tasks[0]["run"], ["HF_TOKEN"]],
        ["merge", 1, tasks[1]["run"], ["HF_TOKEN"]],
    ]
    arguments = ["dpo", "runs/pairs", "--out", OUT]
    text = launch_script(TRAIN_SCRIPTS, "skypilot", "fsdpo-train", arguments)
    expected = ["fsdpo-train-dpo", 2, yaml.safe_load(text)["run"], ["HF_TOKEN"]]
    assert read_tasks(text) == [expected]
    check_syntax(expected[2])


@pytest.mark.parametrize("launcher", ["sbatch", "hf-jobs", "skypilot"])
def test_the_merge_gets_the_plugins_and_the_number_of_processes(launcher: str) -> None:
    arguments = ["build", "--plugin", "a b.py", "--plugin=c", "--workers", "3", "--out", "d"]
    script = launch_script(DATA_SCRIPTS, launcher, "fsdpo-data", arguments)
    merge = "fsdpo-data merge --plugin 'a b.py' --plugin c --workers 3 d-shards/* --out d"
    assert merge in script


def test_a_ray_cluster_gets_the_engine() -> None:
    arguments = ["build", "--engine", "vllm", "--print-launch=ray"]
    script = check_syntax(launch_script(DATA_SCRIPTS, "ray", "fsdpo-data", arguments))
    assert "fsdpo-data build --engine ray" in script and "ray start --head" in script


def test_the_command_line_prints_it_and_does_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output, _ = run(capsys, "build", "--out", str(out), "--print-launch", "sbatch")
    assert code == 0 and f"--out {out}-shards" in check_syntax(output) and not out.exists()
    code, _, err = run(capsys, "build", "--out", str(out), "--print-launch", "slurm")
    assert code == 1 and "--print-launch slurm: expected sbatch or ray or hf-jobs" in err
    code, _, err = run(capsys, "build", "--print-launch", "sbatch")
    assert code == 1 and "needs --out" in err
    line = ["build", "--prm", "tiny", "--out", str(out), "--print-launch"]
    code, _, err = run(capsys, *line, "hf-jobs")
    assert code == 1 and "a shard of a build contains only samples" in err
    assert run(capsys, *line, "kuberay")[0] == 0  # one job, without shards
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as caught:
        line = ["fsdpo-train", "sft", "a.jsonl", "--model", "tiny", "--out", str(out)]
        patch.setattr("sys.argv", [*line, "--print-launch", "torchrun"])
        train()
    assert not caught.value.code and "-m fsdpo_train sft a.jsonl" in check_syntax(
        capsys.readouterr()[0]
    )
