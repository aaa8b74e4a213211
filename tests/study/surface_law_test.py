"""Checks studies/surface/law.py on studies made by known laws: it finds the laws, and the token ratio that they have in
closed form."""
import math
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "studies/surface"))
from law import fit, fit_loss, gaps_of, log_ratio, loss_of, bf16_losses_of  # noqa: E402

LOSS = (0.7, -1.5, 0.4, 0.3, 0.6)  # E, ln A, alpha, ln B, beta
GAPS = {"nvfp4": (4.0, -0.5, 0.03), "mxfp4": (3.5, -0.4, 0.05)}  # ln c, -a, b


class Made:
    """What law.py asks of a study: two seeds about the laws."""

    def __init__(self, parameters, places):
        self.parameters, self.budgets, self.seeds = parameters, [round(p * parameters) for p in places], [1, 2]
        d = np.array(self.budgets, float)
        bf16 = loss_of(LOSS, parameters / 1e6, d / 1e6)
        self.losses = {"bf16": bf16 + [[0.001], [-0.001]]}
        for arm, (ln_c, minus_a, b) in GAPS.items():
            gap = np.exp(ln_c + minus_a * math.log(parameters) + b * np.log(d / parameters))
            self.losses[arm] = self.losses["bf16"] + gap * [[1.1], [0.9]]
        self.apart = {arm: np.zeros(len(places), bool) for arm in self.losses}

    def means(self):
        return self.losses


def main():
    studies = [Made(n, (8, 16, 32, 64, 128)) for n in (300_000, 1_200_000, 4_800_000)]
    whole = [np.arange(2)] * 3
    points = [(s.parameters, *gaps_of(s)) for s in studies]
    laws = {arm: fit(points, arm, whole) for arm in GAPS}
    for arm, law in GAPS.items():
        assert np.allclose(laws[arm], law, atol=1e-5), (arm, laws[arm])
    assert np.allclose(fit(points, "nvfp4", [[0]] * 3)[0], 4.0 + math.log(1.1), atol=1e-5), "the drawn seeds' law"
    found = fit_loss([(s.parameters, *bf16_losses_of(s)) for s in studies], whole)
    assert np.allclose(found, LOSS, atol=1e-3), found

    # Gaps that do not depend on D: E + A N^-alpha drop out, and B D^-beta - B (r D)^-beta is their difference.
    n, place = 25_000_000, 10.0
    flat = {arm: (ln_c, minus_a, 0.0) for arm, (ln_c, minus_a, _) in GAPS.items()}
    effects = {"nvfp4": 1.2, "mxfp4": 0.9}
    gap = {arm: effects[arm] * math.exp(law[0] + law[1] * math.log(n)) for arm, law in flat.items()}
    term = math.exp(LOSS[3]) * (n * place / 1e6) ** -LOSS[4]
    expected = -math.log(1 - (gap["mxfp4"] - gap["nvfp4"]) / term) / LOSS[4]
    assert abs(log_ratio(LOSS, flat, n, place, effects) - expected) < 1e-9
    assert math.isnan(log_ratio(LOSS, flat, n, place, effects | {"mxfp4": 9.0})), "MXFP4 never reaches that loss"


if __name__ == "__main__":
    main()
