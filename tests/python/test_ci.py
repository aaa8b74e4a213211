"""What CI jobs of users run: the GitHub Action, its script alone, and the hook of pre-commit. The steps of the Action run
here as a runner of GitHub would run them."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is absent")
ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github/actions/fp4lab-verify"
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


def environment(**more):
    scripts = os.path.dirname(sys.executable)
    return {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), **more}


def run_action(folder, **given):
    """The exit code, the summary and the outputs of a job whose step uses the Action with these inputs."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    assert action["runs"]["using"] == "composite" and given.keys() <= action["inputs"].keys()
    values = {f"inputs.{name}": given.get(name, of.get("default", "")) for name, of in action["inputs"].items()}
    summary, outputs = folder / "summary.md", {}
    summary.write_text("")
    for step in action["runs"]["steps"]:
        assert step.keys() <= {"name", "id", "shell", "env", "run"} and step["shell"] == "bash"
        assert not EXPRESSION.search(step["run"])  # inputs reach a script as variables, never as its text
        written = folder / "output"
        written.write_text("")
        variables = {name: EXPRESSION.sub(lambda m: values[m[1]], text) for name, text in step.get("env", {}).items()}
        script = folder / "step.sh"
        script.write_text(step["run"])
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script], cwd=folder, capture_output=True, text=True,
            env=environment(GITHUB_ACTION_PATH=str(ACTION), GITHUB_STEP_SUMMARY=str(summary),
                            GITHUB_OUTPUT=str(written), **variables))  # fmt: skip
        for line in written.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{name}"] = value
        if ran.returncode:
            break
    for name, of in action["outputs"].items():
        outputs[name] = EXPRESSION.sub(lambda m: values.get(m[1], ""), of["value"])
    return ran, summary.read_text(), outputs


def fp4lab(folder, *words):
    done = subprocess.run(["fp4lab", *words], cwd=folder, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def job(tmp_path):
    """A folder with a golden pack, and what two kernels of a GPU job wrote for its input."""
    fp4lab(tmp_path, "cases", "--family", "factor-hazards", "--out-dir", "in")
    fp4lab(tmp_path, "pack", "--input", "in/0000.x.npy", "--out", "golden.safetensors")
    fp4lab(tmp_path, "quantize", "in/0000.x.npy", "--dialect", "nvfp4.te", "--out", "right.npz")
    fp4lab(tmp_path, "quantize", "in/0000.x.npy", "--dialect", "nvfp4.cutlass", "--out", "wrong.npz")
    return tmp_path


def test_right_bytes_pass(job):
    ran, summary, outputs = run_action(
        job, pack="golden.safetensors", options="--codes right.npz#codes --scales 'right.npz#scales'"
    )
    assert ran.returncode == 0, ran.stderr
    assert summary.startswith("### fp4lab: the bytes are right\n") and "nvfp4.te: " in summary
    assert "Causes" not in summary and outputs == {"verdict": "equal"}


def test_wrong_bytes_fail_with_causes(job):
    ran, summary, outputs = run_action(
        job, pack="golden.safetensors", options="--codes wrong.npz#codes --scales wrong.npz#scales",
        package=os.environ.get("FP4LAB_WHEEL", ""))  # fmt: skip
    assert ran.returncode == 1 and outputs == {"verdict": "different"}
    assert summary.startswith("### fp4lab: the bytes differ\n") and "nvfp4.te: DIFFERENT" in summary
    assert "The kernel computes nvfp4.cutlass." in summary.partition("#### Causes")[2]
    assert summary in ran.stdout


def answers(folder, *kernel):
    with open(folder / "answers", "wb") as out:
        cases = subprocess.Popen(["fp4lab", "cases"], stdout=subprocess.PIPE, env=environment())
        subprocess.run(["fp4lab", "cases", "answer", *kernel], stdin=cases.stdout, stdout=out, env=environment(), check=True)
        assert cases.wait() == 0


def test_answers_to_the_directed_cases(tmp_path):
    answers(tmp_path)
    ran, summary, outputs = run_action(tmp_path, answers="answers", options="--dialect nvfp4.te")
    assert ran.returncode == 0 and outputs == {"verdict": "equal"}, summary
    answers(tmp_path, "--deviation", "truncation")
    ran, summary, outputs = run_action(tmp_path, answers="answers", options="--dialect nvfp4.te")
    assert ran.returncode == 1 and outputs == {"verdict": "different"}
    assert "truncat" in summary.partition("#### Causes")[2]


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, "give pack PACK, or answers PLACE"),
        ({"pack": "a", "answers": "b"}, "not both"),
        ({"pack": "gone.safetensors", "options": "--codes c.npy --scales s.npy"}, "gone.safetensors"),
        ({"pack": "a", "options": "--cods c.npy"}, 'did you mean "--codes"'),
    ],
)
def test_mistakes_are_errors_and_no_verdicts(tmp_path, given, problem):
    ran, summary, outputs = run_action(tmp_path, **given)
    assert ran.returncode == 2 and problem in ran.stderr + summary
    assert outputs["verdict"] in ("", "error")


def test_the_script_alone_prints_the_report(job):
    script = [ACTION / "verify.sh", "pack", "golden.safetensors", "--codes", "wrong.npz#codes",
              "--scales", "wrong.npz#scales"]  # fmt: skip
    ran = subprocess.run(script, cwd=job, capture_output=True, text=True, env=environment())
    assert ran.returncode == 1 and ran.stdout.startswith("### fp4lab: the bytes differ\n")


def test_the_hook_of_pre_commit(tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == "fp4lab-check" and hook["language"] == "python"
    np.save(tmp_path / "x.npy", np.ones((32, 128), np.float32))
    fp4lab(tmp_path, "quantize", "x.npy", "--convention", "modelopt", "--dialect", "modelopt", "--out", "bad.safetensors")
    x = np.random.default_rng(0).standard_normal((32, 128), np.float32)
    x[0, 0] = 20  # one block has the largest scale, as in a large matrix
    np.save(tmp_path / "x.npy", x)
    fp4lab(tmp_path, "quantize", "x.npy", "--convention", "modelopt", "--dialect", "modelopt", "--out", "good.safetensors")
    (tmp_path / "model.py").write_text("")

    def commit(*names):
        staged = [name for name in names if re.search(hook["files"], name)]
        return subprocess.run([*shlex.split(hook["entry"]), *staged], cwd=tmp_path, capture_output=True, text=True,
                              env=environment())  # fmt: skip

    good = commit("good.safetensors", "model.py")
    assert good.returncode == 0, good.stdout
    bad = commit("good.safetensors", "bad.safetensors", "model.py")
    assert bad.returncode == 1
    assert "good.safetensors: " in bad.stdout and "constant-codes (1)" in bad.stdout
