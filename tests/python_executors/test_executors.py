"""fp4lab.study.run on the executors that clusters have: Dask, submitit, Ray and executorlib, with workers that are
killed while they train, on a full disk, and beside another call for the same folder."""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fp4lab import study

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guides/cluster.md"
STUDY = {
    "name": "executors",
    "model": {"layers": 2, "d_model": 64, "heads": 2, "ffn": 256, "sequence": 64},
    "schedule": {"learning_rate": 0.01, "warmup_steps": 3},
    "data": {"source": "synthetic", "synthetic_bytes": 200000},
    "batch": 8,
    "evaluation": {"tokens": 4096, "chunk_tokens": 128},
    "arms": {"bf16": {"recipe": "bf16"}, "nvfp4": {"recipe": "te_nvfp4"}},
    "seeds": [1, 2],
    "budgets": [51200],
}


def timeless(folder):
    results = json.loads((folder / "results.json").read_text())
    results.pop("sha256")
    for run in results["runs"]:
        run.pop("seconds"), run.pop("tokens_per_second")
    return results


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("study") / "study.json"
    file.write_text(json.dumps(STUDY))
    return file


@pytest.fixture(scope="module")
def whole(file):
    """The results of one process."""
    return timeless(study.run(file, file.parent / "whole", "--jobs", "1"))


def training(out):
    """The processes that train a run of `out`."""
    found = subprocess.run(["pgrep", "-f", f"study run .*--out-dir {out} --only"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


class Killer(threading.Thread):
    """Kills one process that trains a run of `out`, and the worker that started it."""

    def __init__(self, out):
        super().__init__(daemon=True)
        self.out, self.killed = out, []
        self.start()

    def run(self):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for pid in training(self.out):
                if not list(self.out.glob("runs/*/.lock")):
                    continue
                try:
                    with open(f"/proc/{pid}/stat") as stat:
                        worker = int(stat.read().rsplit(")", 1)[1].split()[1])
                    for victim in worker, pid:
                        os.kill(victim, signal.SIGKILL)
                    self.killed = [worker, pid]
                    return
                except (OSError, ProcessLookupError):
                    continue
            time.sleep(0.005)


def runs_beside_a_killer(file, out, executor, whole):
    killer = Killer(out)
    study.run(file, out, executor=executor)
    killer.join(1)
    assert killer.killed, "no worker was killed"
    assert timeless(out) == whole


def test_dask(file, whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            runs_beside_a_killer(file, tmp_path / "out", client, whole)
            out = study.run(file, tmp_path / "apart", executor=client, shared=False)
    assert timeless(out) == whole


def test_submitit(file, whole, tmp_path):
    submitit = pytest.importorskip("submitit")
    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="local")
    executor.update_parameters(timeout_min=10)
    runs_beside_a_killer(file, tmp_path / "out", executor, whole)


def test_ray(file, whole, tmp_path):
    ray = pytest.importorskip("ray")
    block = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    shown = {"ray": ray}
    exec(block, shown)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        runs_beside_a_killer(file, tmp_path / "out", shown["RayExecutor"](), whole)
    finally:
        ray.shutdown()


def test_executorlib(file, whole, tmp_path):
    executorlib = pytest.importorskip("executorlib")
    with executorlib.SingleNodeExecutor(max_workers=2) as executor:
        out = study.run(file, tmp_path / "out", executor=executor)
    assert timeless(out) == whole


def test_two_calls_for_one_folder_share_the_runs(file, whole, tmp_path):
    out = tmp_path / "out"
    with ThreadPoolExecutor(2) as calls, ThreadPoolExecutor(2) as first, ThreadPoolExecutor(2) as second:
        for call in [calls.submit(study.run, file, out, executor=pool) for pool in (first, second)]:
            call.result()
    assert timeless(out) == whole


def test_a_full_disk_is_one_clear_error_and_loses_nothing(file, whole, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount a small disk: {mounted.stderr.strip()}")

    def fill():
        """Takes all space as soon as a run trains."""
        while not list(disk.glob("out/runs/*/.lock")):
            time.sleep(0.001)
        try:
            with open(disk / "filler", "wb") as filler:
                while True:
                    filler.write(bytes(4096))
                    filler.flush()
        except OSError:
            pass

    try:
        with ThreadPoolExecutor(1) as executor:
            full = threading.Thread(target=fill, daemon=True)
            full.start()
            with pytest.raises(RuntimeError, match="No space left on device"):
                study.run(file, disk / "out", executor=executor, attempts=1)
            full.join(10)
            with pytest.raises(OSError, match="No space left on device: '.*/study.json'"):
                study.run(file, disk / "out", executor=executor, attempts=1)
            (disk / "filler").unlink()
            study.run(file, disk / "out", executor=executor)
        assert timeless(disk / "out") == whole
        assert not list(disk.rglob("*.partial-*"))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
