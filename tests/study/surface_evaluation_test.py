"""Checks studies/surface/evaluation.py and sizes.py and studies/league/multiplicity.py: intervals hold the truth as
often as they say, the text's error is that of made-up text, sizes come out of a made-up law, and Holm's method is
Holm's."""
import math
import pathlib
import sys
import types

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "studies/surface"), str(ROOT / "studies/league")]
from evaluation import DRAWS, fieller, text_draws, with_text  # noqa: E402
from multiplicity import holm  # noqa: E402
from sizes import bf16_size, same_bytes, welch  # noqa: E402

RNG = np.random.default_rng(5)
TRIALS = 1500


def within(count):
    """Whether so many of TRIALS intervals may hold the truth at 95 %."""
    return abs(count / TRIALS - 0.95) < 4 * math.sqrt(0.95 * 0.05 / TRIALS)


def check_fieller():
    held = 0
    for _ in range(TRIALS):
        seed = RNG.normal(0, 0.1, 8)  # what both gaps share
        above, below = 2 + seed + RNG.normal(0, 0.1, 8), 1 + seed + RNG.normal(0, 0.1, 8)
        low, high = fieller(above, below)
        held += low <= 2 <= high
    assert within(held), held
    assert fieller(np.array([1.0, 2, 3]), np.array([-0.1, 0.1, 0.05])) is None


def check_welch():
    held = 0
    for _ in range(TRIALS):
        of = welch(RNG.normal(1, 0.3, 3), RNG.normal(0.5, 0.1, 13))
        held += of["interval"][0] <= 0.5 <= of["interval"][1]
    assert held / TRIALS > 0.92, held  # approximate at three seeds


def check_text():
    """Chunks that come in pairs of like ones: the draws give the error of their mean."""
    like = np.repeat(RNG.normal(0, 1, 512), 4)
    study = types.SimpleNamespace(losses={"bf16": np.zeros((1, 1, len(like)))},
                                  results={"study": {"evaluation": {"chunk_tokens": 2048}}})
    draws = text_draws(study)
    assert draws.shape == (DRAWS, len(like))
    error = like[draws].mean(1).std(ddof=1)
    expected = like.std() / math.sqrt(512)  # single chunks would give half of it
    assert 0.8 * expected < error < 1.2 * expected, (error, expected)
    wide = with_text({"mean": 1.0, "interval_t": [0.97, 1.03], "seeds": []}, 0.04 / 1.96)
    assert np.allclose(wide["interval_with_text"], [0.95, 1.05]), wide


def part(name, parameters, budgets, gap, seeds=4):
    """A study whose BF16 loss falls with ln N and ln D, and whose formats have that of a model of `gap` the size."""
    rows = []
    for tokens in budgets:
        loss = 3 - 0.1 * math.log(parameters) - 0.05 * math.log(tokens)
        noise = RNG.normal(0, 1e-5, seeds)
        rows.append({"tokens": tokens, "bytes_per_parameter": tokens / parameters, "apart": 0.01,
                     "bf16": {"seeds": list(loss + noise)},
                     **{arm: {"seeds": [-0.1 * math.log(gap)] * seeds} for arm in ("nvfp4", "mxfp4")}})
    record = {"mean": math.log(2), "seeds": [math.log(2) + x for x in (-0.01, 0, 0.01)]}
    ratios = [{"tokens": t, "bytes_per_parameter": t / parameters, "form": "shrink", "log_ratio": record}
              for t in budgets]
    return {"name": name, "block_parameters": parameters, "budgets": list(budgets), "seeds": list(range(seeds)),
            "gaps": rows, "ratios_to_bf16": {"nvfp4": ratios, "mxfp4": ratios}}


def check_sizes():
    budgets = [2e7, 4e7, 8e7, 16e7]
    small, large = part("small", 1e6, budgets, 0.6), part("large", 4e6, budgets, 0.6)
    for record in bf16_size(small, large, np.random.default_rng(1)):
        assert abs(record["size"] - 0.6) < 1e-3, record
        assert record["interval"][0] <= record["size"] <= record["interval"][1], record
    pairs = same_bytes(small, large)  # 20, 40, 80, 160 and 5, 10, 20, 40 bytes a parameter
    assert sorted({r["bytes_per_parameter"][0] for r in pairs}) == [20, 40]
    assert all(abs(r["log_difference"]["mean"]) < 1e-12 for r in pairs)


def check_holm():
    pairs = [{"p": p} for p in (0.01, 0.04, 0.03, 0.005)]
    assert [pair["kept"] for pair in holm(pairs)] == [True, False, False, True]


if __name__ == "__main__":
    check_fieller()
    check_welch()
    check_text()
    check_sizes()
    check_holm()
