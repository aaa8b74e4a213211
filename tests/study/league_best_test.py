#!/usr/bin/env python3
"""Which recipes studies/league/best.py takes for the larger model, and what recipes cost."""
import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies/league"))
import best  # noqa: E402
import costs  # noqa: E402

RESULTS = ROOT / "studies/results/surface-c-1.2m/results.json"


class LeagueTest(unittest.TestCase):
    def setUp(self):
        self.results = json.loads(RESULTS.read_text())
        self.recipe = self.results["study"]["arms"]["nvfp4"]["recipe"]

    def test_only_4_bit_recipes_in_the_order_of_their_losses(self):
        self.assertEqual(best.best(self.results, {}), ["nvfp4", "mxfp4"])
        self.assertEqual(best.best(self.results, {"nvfp4": {}}), ["mxfp4"])
        self.results["runs"] = [r for r in self.results["runs"] if (r["arm"], r["seed"]) != ("nvfp4", 5)]
        self.assertEqual(best.best(self.results, {}), ["mxfp4"])  # a seed of nvfp4 is missing

    def test_the_file_gets_the_arms_and_stays_json(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "study.json"
            file.write_text((ROOT / "studies/league/c-4.7m.json").read_text())
            before = json.loads(file.read_text())["arms"]
            best.main(RESULTS, file)
            after = json.loads(file.read_text())["arms"]
            self.assertEqual(list(after), [*before, "nvfp4"])  # mxfp4 is there

    def test_shares_of_products_by_width(self):
        self.assertEqual(costs.shares(self.recipe, 6), {4: 1, 8: 0, 16: 0})
        recipe = copy.deepcopy(self.recipe)
        recipe["last_blocks_bf16"] = "15%"  # one of six
        recipe["wgrad"]["grad"]["format"] = {"like": "fp8_e4m3", "row_scaled": True}
        shares = costs.shares(recipe, 6)
        for width, share in ((4, 5 / 9), (8, 5 / 18), (16, 1 / 6)):
            self.assertAlmostEqual(shares[width], share)
        recipe = copy.deepcopy(self.recipe)
        recipe["exclude"] = ["blocks.*.attention.*"]
        self.assertAlmostEqual(costs.shares(recipe, 6)[4], 2 / 3)
        recipe["then"] = {"at": 0.75, "recipe": self.recipe}
        self.assertAlmostEqual(costs.shares(recipe, 6)[4], 0.75)

    def test_what_a_recipe_adds_to_its_products(self):
        results = json.loads((ROOT / "studies/results/league-c-1.2m-4bit/results.json").read_text())
        arms = results["study"]["arms"]
        for arm, hadamard, stochastic, two_scales, ms_eden in (
                ("te_nvfp4", 2, 2, 0, 0), ("te_nvfp4_4over6_weights", 2, 2, 2, 0), ("quartet2", 4, 0, 2, 4),
                ("amd_mxfp4_full_h16", 6, 0, 0, 0), ("fp4_all_the_way", 0, 3, 0, 0), ("bf16", 0, 0, 0, 0)):
            counts = {"hadamard": hadamard, "stochastic": stochastic, "two_scales": two_scales, "ms_eden": ms_eden}
            self.assertEqual(costs.extras(arms[arm]["recipe"]), counts)

    def test_widths_of_formats(self):
        for form, bits in (("none", 16), ("mxfp8_e4m3.rceil", 8), ("nvfp4.te", 4), ("mxfp4.even", 4),
                           ({"element": "e4m3", "like": "nvfp4.te"}, 8), ({"element": "e0m3", "like": "nvfp4.te"}, 4)):
            self.assertEqual(costs.bits(form), bits)


if __name__ == "__main__":
    unittest.main()
