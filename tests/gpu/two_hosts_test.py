"""One run on two hosts: two network namespaces, each with a GPU of this machine, a network card between them.

Usage: two_hosts_test.py PROGRAM. Needs root, two GPUs, NCCL and ip (iproute2); where one is missing it prints SKIPPED.
Namespaces share the kernel and the clock, so this shows the meeting, NCCL over TCP and the losses of hosts, not a
network's speed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(sys.argv[1]).resolve()
HOSTS = ("fp4lab-a", "fp4lab-b")
ADDRESSES = {"IPv4": ("10.71.0.1", "10.71.0.2"), "IPv6": ("fd71::1", "fd71::2")}
MODEL = {"layers": 4, "d_model": 128, "heads": 4, "ffn": 512, "sequence": 128}
RUN = {"model": MODEL, "batch": 16, "micro_batches": 2, "data": {"source": "synthetic"},
       "device": "cuda", "log_every": 1, "evaluation": {"tokens": 4096}}


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(0)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def card(host):
    return "card-" + host[-1]


def connect_hosts():
    ip("link", "add", card(HOSTS[0]), "type", "veth", "peer", "name", card(HOSTS[1]))
    for i, host in enumerate(HOSTS):
        ip("netns", "add", host)
        ip("link", "set", card(host), "netns", host)
        ip("-n", host, "address", "add", ADDRESSES["IPv4"][i] + "/30", "dev", card(host))
        ip("-n", host, "address", "add", ADDRESSES["IPv6"][i] + "/64", "dev", card(host), "nodad")
        for link in ("lo", card(host)):
            ip("-n", host, "link", "set", link, "up")


def disconnect_hosts():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "delete", host], stderr=subprocess.DEVNULL)


def start(folder, *arguments, rank=None, family="IPv4", steps=12):
    """fp4lab train, alone or as one of two processes on a host of its own."""
    command = [str(PROGRAM), "train", "--out-dir", str(folder), *arguments]
    command += [] if "--resume" in arguments else ["--steps", str(steps)]
    environment = dict(os.environ)
    if rank is not None:
        command = ["ip", "netns", "exec", HOSTS[rank], *command]
        environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_PORT": "29471",
                        "MASTER_ADDR": ADDRESSES[family][0], "FP4LAB_TOKEN": "two hosts",
                        "NCCL_HOSTID": HOSTS[rank], "NCCL_SOCKET_IFNAME": card(HOSTS[rank]),
                        "NCCL_SOCKET_FAMILY": {"IPv4": "AF_INET", "IPv6": "AF_INET6"}[family]}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process, seconds=120):
    """Exit code, and the lines of stderr but those of progress."""
    _, errors = process.communicate(timeout=seconds)
    return process.returncode, [line for line in errors.splitlines() if line.startswith("error:")]


def losses(folder, name="learning/loss"):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[name] for line in lines if name in line}


def check(is_true, *what):
    print("ok  " if is_true else "FAIL", *what, flush=True)
    if not is_true:
        sys.exit(1)


def check_same(found, wanted, what):
    distance = max(abs(found[step] - wanted[step]) for step in wanted)
    check(found.keys() == wanted.keys() and distance < 5e-3, f"{what}: losses differ by at most {distance:.1e}")


def wait_for_step(folder, step):
    for _ in range(600):
        if (folder / "metrics.jsonl").exists() and max(losses(folder), default=0) >= step:
            return
        time.sleep(0.1)
    check(False, f"step {step} was reached")


def test_equal_runs(folder, config):
    for family, recipe in (("IPv4", "te_nvfp4"), ("IPv6", "tetrajet")):  # tetrajet rounds weights stochastically
        alone, out = folder / f"{recipe} alone", folder / recipe
        results = [ended(start(alone, *config, "--recipe", recipe))]
        both = [start(out, *config, "--recipe", recipe, rank=r, family=family) for r in (1, 0)]
        results += [ended(process) for process in both]
        check(results == 3 * [(0, [])], f"{recipe} alone and on two hosts by {family}", results)
        for name in ("learning/loss", "eval/avg_loss"):
            check_same(losses(out, name), losses(alone, name), f"{recipe} on two hosts by {family}, {name}")


def test_mistakes(folder, config):
    for what, arguments in {"recipe": ["--recipe", "mxfp4"], "steps": [], "seed": ["--seed", "7"]}.items():
        begin = time.monotonic()
        both = [start(folder / what, *config, rank=0),
                start(folder / what, *config, *arguments, rank=1, steps=13 if what == "steps" else 12)]
        results = [ended(process) for process in both]
        code, errors = results[0]
        check(results[1] == results[0] and code == 1 and len(errors) == 1 and what in errors[0],
              f"another {what}, {time.monotonic() - begin:.0f} s:", errors)


def test_losses_of_a_process(folder, config):
    cut = ["-n", HOSTS[1], "link", "set", card(HOSTS[1])]
    for what, lose in {"killed": lambda process: process.send_signal(signal.SIGKILL),
                       "standing still": lambda process: process.send_signal(signal.SIGSTOP),
                       "cut off": lambda process: ip(*cut, "down")}.items():
        out = folder / what.replace(" ", "-")
        first, second = (start(out, *config, "--set", "checkpoint_every=5", rank=r, steps=1_000_000) for r in (0, 1))
        wait_for_step(out, 7)
        lose(second)
        begin = time.monotonic()
        code, errors = ended(first, 60)
        seconds = time.monotonic() - begin
        second.kill()
        second.communicate()
        check(code == 1 and len(errors) == 1 and "process 1 of 2" in errors[0] and seconds < 30,
              f"{what}: the other ended after {seconds:.1f} s:", errors)
        if what == "cut off":
            ip(*cut, "up")
            ip("-n", HOSTS[1], "address", "replace", ADDRESSES["IPv6"][1] + "/64", "dev", card(HOSTS[1]), "nodad")


def test_another_number_of_processes(folder, config):
    """Two hosts begin a run, one process ends it, and the losses are those of one process."""
    steps = {"steps": 300}
    check(ended(start(folder / "whole", *config, "--recipe", "bf16", **steps)) == (0, []), "one process, 300 steps")
    whole, out = losses(folder / "whole"), folder / "begun"
    both = [start(out, *config, "--recipe", "bf16", rank=r, **steps) for r in (0, 1)]
    wait_for_step(out, 10)
    for process in both:
        process.send_signal(signal.SIGTERM)
    check([ended(process)[0] for process in both] == [143, 143], "two hosts stopped at step", max(losses(out)))
    check(ended(start(out, "--resume")) == (0, []), "one process went on")
    # Sums in another order drift apart in many steps, so only the first after the change are compared.
    first = {step: whole[step] for step in whole if step <= 40}
    check_same({step: loss for step, loss in losses(out).items() if step <= 40}, first, "begun by two, ended by one")


def test_shared_states(folder, config):
    """Two hosts that share the optimizer's states, are stopped and go on have the bits of two that do not."""
    whole, out = folder / "states of all", folder / "shared states"
    run = [*config, "--recipe", "te_nvfp4"]
    both = [start(whole, *run, rank=r, steps=300) for r in (0, 1)]
    check([ended(process) for process in both] == 2 * [(0, [])], "two hosts, 300 steps")
    both = [start(out, *run, "--shard-optimizer", rank=r, steps=300) for r in (0, 1)]
    wait_for_step(out, 10)
    for process in both:
        process.send_signal(signal.SIGTERM)
    check([ended(process)[0] for process in both] == [143, 143], "shared states: stopped at step", max(losses(out)))
    both = [start(out, "--resume", "--shard-optimizer", rank=r) for r in (0, 1)]
    check([ended(process) for process in both] == 2 * [(0, [])], "shared states: two hosts went on")
    check((out / "checkpoint.fp4lab").read_bytes() == (whole / "checkpoint.fp4lab").read_bytes(),
          "shared states: the checkpoint is that of hosts with all states")

    # Muon's products are made of other batches of matrices.
    muon = [*config, "--recipe", "bf16", "--set", "optimizer.name=muon"]
    alone, out = folder / "muon alone", folder / "muon"
    both = [start(out, *muon, "--shard-optimizer", rank=r) for r in (0, 1)]
    results = [ended(process) for process in [start(alone, *muon), *both]]
    check(results == 3 * [(0, [])], "Muon, alone and with shared states", results)
    check_same(losses(out), losses(alone), "Muon with shared states")


def main():
    if os.geteuid() != 0:
        skip("network namespaces need root")
    if shutil.which("ip") is None:
        skip("no ip (iproute2)")
    listing = shutil.which("nvidia-smi")
    if listing is None or subprocess.run([listing, "-L"], text=True, capture_output=True).stdout.count("GPU ") < 2:
        skip("fewer than two GPUs")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "run.json").write_text(json.dumps(RUN))
        config = ["--config", str(folder / "run.json")]
        disconnect_hosts()
        try:
            connect_hosts()
            test_equal_runs(folder, config)
            test_mistakes(folder, config)
            test_losses_of_a_process(folder, config)
            test_another_number_of_processes(folder, config)
            test_shared_states(folder, config)
        finally:
            disconnect_hosts()


main()
