"""Ctrl-C ends a long call: each of these would take many seconds. What is asserted is processor time, which other
programs on the machine do not change."""

import json
import os
import subprocess
import sys

import pytest

CALLS = {
    "explain": """
x = rng.standard_normal((4096, 4096), np.float32)
codes = rng.integers(0, 256, (4096, 2048), np.uint8)
scales = rng.integers(1, 127, (4096, 256), np.uint8)
call = lambda: fp4lab.explain(x, codes, scales)
""",
    "identify": """
x = rng.standard_normal((2048, 2048), np.float32)
codes = rng.integers(0, 256, (2048, 1024), np.uint8)
scales = rng.integers(1, 127, (2048, 128), np.uint8)
call = lambda: [fp4lab.identify(x, codes, scales, decide=True) for _ in range(40)]
""",
    "scaled_mm": """
q = fp4lab.quantize(rng.standard_normal((3072, 4096), np.float32))
call = lambda: fp4lab.scaled_mm(q, q, accumulation="exact")
""",
    "verify_mm": """
q = fp4lab.quantize(rng.standard_normal((2048, 4096), np.float32))
d = np.zeros((2048, 2048), np.float32)
call = lambda: fp4lab.verify_mm(q, q, d)
""",
    "quantize": """
x = rng.standard_normal((4096, 8192), np.float32)
call = lambda: [fp4lab.quantize(x, "nvfp4.modelopt", rounding="stochastic", seed=1) for _ in range(40)]
""",
    "assert_kernel": """
from fp4lab import testing
kernels = testing.wrong_kernels(scale_layout="linear")
def all_of_them():
    for k in kernels:
        try:
            testing.assert_kernel(k, level="thorough")
        except AssertionError:
            pass
call = all_of_them
""",
}
BODY = """
import os, signal, threading, time, json, sys
import numpy as np
import fp4lab
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs ignore it
rng = np.random.default_rng(0)
{call}
sent = []
def send():
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.5, send).start()
try:
    call()
    print(json.dumps("ended before the signal"))
except KeyboardInterrupt:
    print(json.dumps(time.process_time() - sent[0]))
    q = fp4lab.quantize(np.eye(16, dtype=np.float32))  # the library goes on
    assert (q.dequantize() == np.eye(16)).all()
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_call(name, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", BODY.format(call=CALLS[name])], env=environment, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    seconds = json.loads(done.stdout)
    assert isinstance(seconds, float) and seconds < 2, seconds


def test_signals_of_other_handlers_run_and_the_call_goes_on():
    code = BODY.format(call="""
x = rng.standard_normal((2048, 4096), np.float32)
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
q = fp4lab.quantize(x, "nvfp4.modelopt")
def call():
    os.kill(os.getpid(), signal.SIGUSR1)
    start = time.monotonic()
    while time.monotonic() < start + 1.5:
        assert (fp4lab.quantize(x, "nvfp4.modelopt").data == q.data).all()
    assert len(seen) == 1
""")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and 0 <= json.loads(done.stdout) < 2, done.stderr
