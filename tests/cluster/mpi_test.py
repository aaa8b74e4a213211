"""One run in several processes over MPI has the bits of one process.

mpi_test.py PROGRAM MPIEXEC FOLDER: trains tiny models in 1, 2 and 4 processes on this machine and compares checkpoints,
metrics and diagnostics. Stops and kills such runs, and goes on with other numbers of processes. So do processes that
share the optimizer's states, which have to need less memory. FOLDER is made anew.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

PROGRAM, MPIEXEC = sys.argv[1:3]
FOLDER = pathlib.Path(sys.argv[3])
# Containers often forbid the system call by which processes read each other's memory.
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                   OMPI_MCA_btl_vader_single_copy_mechanism="none")

TINY = {"model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 64, "sequence": 32},
        "data": {"source": "synthetic", "synthetic_bytes": 20000},
        "schedule": {"learning_rate": 0.005, "warmup_steps": 2},
        "evaluation": {"tokens": 96, "every": 2, "diagnostics_every": 1},  # three micro-batches: one of four has none
        "batch": 4, "micro_batches": 4, "tokens": 4 * 128}
MIXTURE = {"parts": ["attention", "moe"],
           "moe": {"experts": 4, "ffn": 32, "top_k": 2, "shared_experts": 1, "bias_rate": 0.01}}
SHARDED = ("mixture of experts", "muon")  # the runs that also share the optimizer's states
# The members of each run beside those of TINY.
RUNS = {
    "bf16": {"recipe": "bf16"},
    "stochastic": {"recipe": "te_nvfp4"},
    "stochastic weights": {"recipe": "tetrajet"},
    "delayed scaling": {"recipe": "te_fp8_delayedscaling"},
    "side terms": {"recipe": "averis"},
    "mixture of experts": {"recipe": "te_nvfp4", "model": {**TINY["model"], **MIXTURE}},
    "muon": {"recipe": "te_nvfp4", "optimizer": {"name": "muon"}},
    "tied head": {"recipe": "te_mxfp8", "model": {**TINY["model"], "tied_head": True}},
    "teacher": {"recipe": "te_nvfp4", "seed": 3, "teacher": {"share": 0.5, "from": str(FOLDER / "bf16" / "1")}},
}


def check(holds, text):
    if not holds:
        sys.exit(f"FAILED: {text}")


def configuration(name, members):
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({**TINY, **members}))
    return path


def command(processes, *arguments):
    """One process is started without a launcher."""
    launcher = [] if processes == 1 else [MPIEXEC, "-n", str(processes)]
    return [*launcher, PROGRAM, "train", *map(str, arguments)]


def run(arguments):
    return subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def train(processes, *arguments):
    done = run(command(processes, *arguments))
    check(done.returncode == 0, f"{processes} processes, {arguments}: {done.stdout}{done.stderr}")
    return done.stdout


def numbers(out_dir):
    """What a run leaves that depends on no time."""
    lines = [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]
    timeless = [{key: value for key, value in line.items() if not key.startswith("perf/")} for line in lines]
    diagnostics = out_dir / "diagnostics.jsonl"
    return ((out_dir / "checkpoint.fp4lab").read_bytes(), timeless,
            diagnostics.read_text() if diagnostics.exists() else "")


def check_same(name, out_dir, whole):
    for what, here, there in zip(("checkpoint", "metrics", "diagnostics"), numbers(out_dir), numbers(whole)):
        check(here == there, f"{name}: the {what} of {out_dir} is not that of {whole}")


def same_bits():
    for name, members in RUNS.items():
        path, folder = configuration(name, members), FOLDER / name
        printed = {n: train(n, "--config", path, "--out-dir", folder / str(n)) for n in (1, 2, 4)}
        for n in (2, 4):
            check_same(name, folder / str(n), folder / "1")
            check(printed[n] == printed[1].replace(f"{folder}/1/", f"{folder}/{n}/"), f"{name} prints {printed[n]}")
        for n in (2, 4) if name in SHARDED else ():
            train(n, "--config", path, "--out-dir", folder / f"{n} sharded", "--shard-optimizer")
            check_same(name, folder / f"{n} sharded", folder / "1")


def started(processes, config, out_dir, lines, *options):
    """A run that has written so many lines of metrics."""
    launcher = subprocess.Popen(command(processes, "--config", config, "--out-dir", out_dir, *options),
                                env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = out_dir / "metrics.jsonl"
    while launcher.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
        time.sleep(0.02)
    check(launcher.poll() is None, f"{out_dir}: the run was over too soon")
    return launcher


def workers(launcher):
    children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(child) for child in children if os.path.realpath(f"/proc/{child}/exe") == os.path.realpath(PROGRAM)]


def is_running(process):
    try:
        return " Z " not in pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def check_end(launcher, processes):
    """All processes end soon, and the launcher says that something was wrong."""
    check(launcher.wait(timeout=30) != 0, "the launcher of a run that did not end returned 0")
    deadline = time.monotonic() + 30
    while any(map(is_running, processes)):
        check(time.monotonic() < deadline, "a process goes on after the others have ended")
        time.sleep(0.05)


def interruptions():
    members = {"recipe": "te_nvfp4", "tokens": 600 * 128, "checkpoint_every": 10,
               "evaluation": {"tokens": 128, "diagnostics_every": 0}}
    path, whole = configuration("long", members), FOLDER / "long" / "whole"
    train(1, "--config", path, "--out-dir", whole)

    stopped = FOLDER / "long" / "stopped"
    launcher = started(2, path, stopped, 30)
    processes = workers(launcher)
    check(len(processes) == 2, f"two processes, not {processes}")
    launcher.send_signal(signal.SIGTERM)
    check_end(launcher, processes)
    for n in (1, 4):
        goes_on = FOLDER / "long" / f"goes on in {n}"
        shutil.copytree(stopped, goes_on)
        train(n, "--resume", "--out-dir", goes_on)
        check_same("stopped", goes_on, whole)

    killed = FOLDER / "long" / "killed"
    launcher = started(4, path, killed, 30)
    processes = workers(launcher)
    os.kill(processes[2], signal.SIGKILL)
    check_end(launcher, processes)
    train(2, "--resume", "--out-dir", killed)
    check_same("killed", killed, whole)

    # Saved by the clock of the first process alone, and stopped while all share the optimizer's states.
    sharded = FOLDER / "long" / "sharded"
    launcher = started(4, path, sharded, 30, "--shard-optimizer", "--set", "checkpoint_minutes=0.001")
    processes = workers(launcher)
    launcher.send_signal(signal.SIGTERM)
    check_end(launcher, processes)
    train(2, "--resume", "--out-dir", sharded, "--shard-optimizer")
    check_same("sharded", sharded, whole)


def memory():
    """Four processes that share the states of AdamW save three quarters of these, while they save a checkpoint, too."""
    width, ffn, layers = 512, 2048, 2
    path = configuration("memory", {
        "recipe": "bf16", "tokens": 2 * 128, "evaluation": {"tokens": 128, "diagnostics_every": 0},
        "model": {"layers": layers, "d_model": width, "heads": 4, "ffn": ffn, "sequence": 32, "activation": "gelu"}})
    peaks = []
    for options in ([], ["--shard-optimizer"]):
        out_dir = FOLDER / "memory" / str(len(options))
        train(4, "--config", path, "--out-dir", out_dir, "--set", "checkpoint_every=1", *options)
        lines = [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]
        peaks.append(max(line.get("perf/peak_memory_bytes", 0) for line in lines))
    states = 2 * 4 * layers * (4 * width**2 + 2 * width * ffn)
    check(peaks[0] - peaks[1] > 0.6 * states, f"peaks of memory: {peaks}, states {states}")


def check_refused(arguments, text, environment={}):
    done = subprocess.run(arguments, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=120)
    errors = {line for line in done.stderr.splitlines() if line.startswith("error: ")}
    check(done.returncode != 0 and len(errors) == 1 and text in "".join(errors), f"{arguments}: {done.stderr}")


def too_large_for_two():
    """A model that the memory here holds once, but not twice: it is refused before it is allocated."""
    width, ffn = 2048, 8192

    def deep(layers):
        model = {"layers": layers, "d_model": width, "heads": 16, "ffn": ffn, "sequence": 32, "activation": "gelu"}
        return configuration("large", {"model": model, "batch": 4, "micro_batches": 2, "recipe": "bf16"})

    refused = run(command(1, "--config", deep(1 << 14), "--out-dir", FOLDER / "refused"))
    available = float(re.search(r"has ([0-9.]+) GiB left", refused.stderr)[1]) * 2**30
    parameters = 4 * width**2 + 2 * width * ffn  # of a block
    return deep(int(0.65 * available / (20 * parameters)))  # 20 bytes of a parameter, and some for products


def refusals():
    path = configuration("refused", {"recipe": "bf16"})
    check_refused(command(3, "--config", path, "--out-dir", FOLDER / "refused"),
                  '"micro_batches" 4 is not a multiple of the 3 processes')
    one = [PROGRAM, "train", "--config", str(path), "--out-dir", str(FOLDER / "refused")]
    check_refused([MPIEXEC, "-n", "1", *one, ":", "-n", "1", *one, "--recipe", "mxfp4"],
                  '(here): inputs/recipe/')
    check_refused([MPIEXEC, "-n", "1", *one, ":", "-n", "1", *one, "--seed", "2"], "seed: 1 here, 2 there")
    check_refused([MPIEXEC, "-n", "1", *one, ":", "-n", "1", *one, "--shard-optimizer"],
                  "shard_optimizer: false here, true there")
    shards = [*one, "--shard-optimizer"]
    check_refused([MPIEXEC, "-n", "1", *shards, ":", "-n", "1", *shards, "--set", "checkpoint_every=3"],
                  "saves/checkpoint_every: 0 here, 3 there")
    check_refused(one, "the launcher says process 1 of 2, and the MPI library process 0 of 1",
                  {"RANK": "1", "WORLD_SIZE": "2"})
    check_refused(command(2, "--config", too_large_for_two(), "--out-dir", FOLDER / "refused"),
                  "2 processes on this host need about ")
    check(not (FOLDER / "refused").exists(), "a run that was refused left a folder")


def can_start():
    """Whether the launcher starts processes here at all: machines may lack a network card or shared memory."""
    try:
        done = run([MPIEXEC, "-n", "2", "true"])
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if not can_start():
    print(f"SKIPPED: {MPIEXEC} cannot start two processes of `true` here")
    sys.exit(0)
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
for part in (same_bits, interruptions, memory, refusals):
    start = time.monotonic()
    part()
    print(f"{part.__name__}: passed in {time.monotonic() - start:.0f} seconds")
