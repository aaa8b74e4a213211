"""Checks the small statistics of the tables: quantiles of t, Holm's method, tiers, the widths of token ratios; and that
the intervals of null arms hold 0 at 95 % of their places."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "studies/results"))
import null_tables  # noqa: E402
import widths  # noqa: E402
from league_tables import tiers  # noqa: E402
from significance import holm_kept, ranks, spearman, student_above, student_quantile, two_sided  # noqa: E402

TABLED = {(1, 0.975): 12.7062, (2, 0.975): 4.3027, (4, 0.975): 2.7764, (5, 0.995): 4.0321, (54, 0.975): 2.0049}


def row(recipe, loss, pool="a", seeds=(1, 2, 3, 4)):
    return {"recipe": recipe, "loss": loss, "pool": pool, "seeds": list(seeds)}


def main():
    for (degrees, p), t in TABLED.items():
        assert abs(student_quantile(p, degrees) - t) < 6e-5, (degrees, p)
        assert abs(student_above(t, degrees) - (1 - p)) < 1e-5
    assert abs(two_sided(0.5, 0.5, 4) - 0.05) < 1e-12
    assert two_sided(0.0, 0.0, 4) == 1.0
    assert holm_kept([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm_kept([]) == []
    assert ranks([8.5, None, 3.0, 8.5, None]) == [2.5, 4.5, 1.0, 2.5, 4.5]
    assert abs(spearman([1, 2, 3, 4], [10, 30, 20, 40]) - 0.8) < 1e-12  # 1 - 6 * 2 / (4 * 15)
    assert abs(spearman([1, 2, None], [3, 2, 1]) + 1) < 1e-12
    assert widths.mark((1.0, 1.17)) == "" and widths.mark((1.0, 1.18)) == " *wide*" and widths.mark(None) == ""
    assert widths.is_wide(-0.1, 1.2)  # no bound
    gaps = null_tables.all_gaps()
    assert len(gaps) >= 60 and sum(map(null_tables.holds, gaps)) >= 0.95 * len(gaps), "null arms leave 0 too often"
    # One seed's half-width of 0.02 at 95 %: 0.01 with four seeds.
    noise = {"half_width_of_one_seed": {"a, a": 0.02}, "pools": {"a": {"degrees_of_freedom": 60}}}
    apart = tiers([row("x", 1.0), row("y", 1.0101)], noise)
    assert apart == [1, 2], apart  # a single comparison: 95 %
    # Two comparisons at 97.5 % each take 0.0115.
    three = tiers([row("x", 1.0), row("y", 1.0101), row("z", 1.02)], noise)
    assert three == [1, 1, 2], three
    unknown = tiers([row("x", 1.0), row("y", 1.5, pool=None), row("z", 1.001)], noise)
    assert unknown == [1, None, 1], unknown


if __name__ == "__main__":
    main()
