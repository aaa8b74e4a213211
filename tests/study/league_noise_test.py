"""Checks studies/league/noise.py on leagues whose noise is known: intervals hold the true difference as often as they
say, within a pool and between two, for three and for five seeds, of normal noise and of noise with heavy tails."""
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "studies/league"))
from noise import Noise, Pool, distinct  # noqa: E402

CALM, WILD, APART = 0.003, 0.006, 0.004  # deviations of the pools, and of what seeds do to WILD alone


def heavy(rng):
    """Student's with 4 degrees of freedom, of deviation 1."""
    return rng.standard_t(4) / math.sqrt(2)


def made(rng, noise):
    """A league of 40 calm recipes and 20 wild ones, whose losses differ from their seeds' by noise alone.
    Every other calm recipe and two of the wild ones have all five seeds, the others three."""
    seeds = {s: rng.normal(0, 0.01) for s in range(1, 6)}
    apart = {s: rng.normal(0, APART) for s in seeds}
    losses = {}
    for i in range(60):
        wild = i >= 40
        losses[f"{'wild' if wild else 'calm'}{i}"] = {
            s: 1.0 + seeds[s] + wild * apart[s] + (WILD if wild else CALM) * noise(rng)
            for s in (seeds if i in (40, 42) or i % 2 == 0 and not wild else (1, 2, 3))}
    return losses


def coverage(noise_of_run):
    """{(recipe, other): the share of leagues whose interval holds 0, the true difference}."""
    pairs = [("calm0", "calm2"), ("calm1", "calm0"), ("wild40", "wild42"), ("wild40", "calm0"), ("wild41", "calm0")]
    held = dict.fromkeys(pairs, 0)
    rng = np.random.default_rng(1)
    count = 1000
    for _ in range(count):
        losses = made(rng, noise_of_run)
        noise = Noise(losses, lambda arm: arm[:4])
        for a, b in pairs:
            common = losses[a].keys() & losses[b].keys()
            difference = np.mean([losses[a][s] - losses[b][s] for s in common])
            held[a, b] += abs(difference) <= noise.half_width(a, b, len(common))
    return {pair: n / count for pair, n in held.items()}


def main():
    # loss = recipe + seed, but for one run of four that is 0.04 off: a rest of 0.01 each, one degree of freedom.
    pool = Pool({"a": {1: 1.0, 2: 1.1}, "b": {1: 2.0, 2: 2.14}})
    assert pool.freedom == 1 and abs(pool.deviation - 0.02) < 1e-12, (pool.freedom, pool.deviation)
    assert abs(pool.seeds[2] - pool.seeds[1] - 0.12) < 1e-12, pool.seeds
    assert distinct({"a": {1: 1.0}, "b": {1: 1.0}, "c": {1: 2.0}}) == ["c", "a"], "the same computation counts once"
    unknown = Noise({"a": {1: 1.0, 2: 1.1}, "b": {1: 2.0, 2: 2.2}, "c": {1: 9.0, 2: 5.0}},
                    lambda arm: None if arm == "c" else "pool")
    assert unknown.half_width("a", "c", 2) is None and unknown.half_width("a", "b", 2) > 0
    alone = Noise({"a": {1: 1.0, 2: 1.1}, "b": {1: 2.0, 2: 2.2}, "c": {1: 1.0, 2: 1.3}},
                  lambda arm: "one" if arm == "c" else "pool")
    assert alone.half_width("a", "c", 2) is None, "a pool of one recipe has no known noise"
    for name, noise in ("normal", np.random.Generator.standard_normal), ("heavy tails", heavy):
        for pair, share in coverage(noise).items():
            print(name, *pair, f"{share:.1%}")
            assert 0.93 <= share <= 0.98, f"{name}, {pair}: {share:.1%} of 95 % intervals hold the true difference"


if __name__ == "__main__":
    main()
