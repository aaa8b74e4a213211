"""`fp4lab import` and `export` beside transformers: the same logits, and the same bytes back."""

import json
import os
import subprocess

import models
import numpy
import pytest
import torch
import transformers
from safetensors.torch import load_file

LENGTH = 20

# The largest difference of logits, as a share of the largest logit.
FP32_BOUND = 1e-5  # sums run in another order
BF16_BOUND = 5e-2  # operands of linears are rounded to 8 bits
SIZES = [{}, dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=4)]


def fp4lab(*arguments):
    done = subprocess.run(
        [os.environ["FP4LAB_PROGRAM"], *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def difference(a, b):
    assert a.shape == b.shape
    return numpy.abs(a - b).max() / numpy.abs(b).max()


def evaluated(checkpoint, tokens, recipe, folder):
    """Logits of the first sequence, and the loss of all tokens."""
    numpy.save(folder / "tokens.npy", tokens.numpy().astype(numpy.uint32))
    text = fp4lab(
        "evaluate", checkpoint, "--tokens", folder / "tokens.npy", "--recipe", recipe,
        "--sequence", LENGTH, "--evaluated", 0, "--logits", folder / "logits.npy", "--json",
    )  # fmt: skip
    return numpy.load(folder / "logits.npy"), json.loads(text)["recipes"][0]["loss"]


def loss_of(model, tokens):
    """Mean nats per token over windows of LENGTH tokens, in binary64."""
    windows = (len(tokens) - 1) // LENGTH
    losses = []
    for start in range(0, windows * LENGTH, LENGTH):
        logits = torch.tensor(models.logits_of(model, tokens[start : start + LENGTH])).double()
        targets = tokens[start + 1 : start + LENGTH + 1].long()
        losses.append(torch.nn.functional.cross_entropy(logits, targets).item())
    return numpy.mean(losses)


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "large"])
@pytest.mark.parametrize("name", models.MODELS)
def test_logits_and_loss_are_those_of_transformers(name, sizes, tmp_path):
    model = models.make(name, seed=7, **sizes)
    model.save_pretrained(tmp_path / "model")
    fp4lab("import", tmp_path / "model", "--out", tmp_path / "a.fp4lab")
    tokens = models.tokens_of(model, 5 * LENGTH + 1, seed=3)
    want = models.logits_of(model, tokens[:LENGTH])
    got, loss = evaluated(tmp_path / "a.fp4lab", tokens, "fp32", tmp_path)
    assert difference(got, want) < FP32_BOUND
    assert loss == pytest.approx(loss_of(model, tokens), rel=1e-5)
    if "moe" not in name and name != "mixtral":  # a router may choose other experts
        rounded, _ = evaluated(tmp_path / "a.fp4lab", tokens, "bf16", tmp_path)
        assert 0 < difference(rounded, want) < BF16_BOUND


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", models.MODELS)
def test_export_gives_the_same_bytes_and_logits(name, dtype, tmp_path):
    model = models.make(name, seed=1, dtype=dtype)
    model.save_pretrained(tmp_path / "model")
    fp4lab("import", tmp_path / "model", "--out", tmp_path / "a.fp4lab")
    fp4lab("export", tmp_path / "a.fp4lab", "--out", tmp_path / "back")
    there = load_file(tmp_path / "model" / "model.safetensors")
    here = load_file(tmp_path / "back" / "model.safetensors")
    there = {key: tensor for key, tensor in there.items() if not key.endswith("bias")}
    assert here.keys() == there.keys()
    for key, tensor in there.items():
        assert here[key].dtype == dtype
        assert torch.equal(here[key], tensor)
    back = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", attn_implementation="eager"
    ).eval()
    assert back.dtype == dtype
    tokens = models.tokens_of(model, LENGTH)
    numpy.testing.assert_array_equal(
        models.logits_of(back, tokens), models.logits_of(model, tokens)
    )


PRESETS = {"llama-3": 64, "qwen3": 64, "qwen3-moe": 64, "mistral": 64, "mixtral": 64, "smollm2": 96}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_trained_preset_is_loaded_by_transformers(preset, tmp_path):
    """At a width that its heads divide: transformers refuses any other."""
    fp4lab(
        "train", "--data", "synthetic", "--set", f"model.preset={preset}", "--set",
        "model.sequence=32", "--set", f"model.d_model={PRESETS[preset]}", "--set", "evaluation.tokens=256", "--set", "batch=2", "--steps", 3,
        "--recipe", "te_nvfp4", "--out-dir", tmp_path / "run",
    )  # fmt: skip
    fp4lab("export", tmp_path / "run", "--out", tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    ).eval()
    tokens = models.tokens_of(model, 5 * LENGTH + 1)
    got, _ = evaluated(tmp_path / "run", tokens, "fp32", tmp_path)
    assert difference(got, models.logits_of(model, tokens[:LENGTH])) < FP32_BOUND
