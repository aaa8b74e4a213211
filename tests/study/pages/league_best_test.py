#!/usr/bin/env python3
"""Which recipes studies/league/best.py takes for the larger model."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "studies/league"))
import best  # noqa: E402

LEAGUE = ROOT / "studies/results/league/league.json"


def row(recipe, loss, four_bits=True, pool="pool"):
    return {"recipe": recipe, "loss": loss, "four_bits": four_bits, "pool": pool}


class LeagueTest(unittest.TestCase):
    def test_only_4_bit_recipes_in_the_order_of_their_losses(self):
        league = {"rows": [row("third", 3), row("wide", 1, four_bits=False), row("first", 1), row("second", 2),
                           row("fallen", 0, pool=None)]}
        self.assertEqual(best.best(league, {}), ["first", "second", "third"])
        self.assertEqual(best.best(league, {"first": {}}), ["second", "third"])
        league["rows"] += [row(str(i), 4 + i) for i in range(9)]
        self.assertEqual(best.best(league, {"first": {}}), ["second", "third", "0", "1", "2", "3"])

    def test_the_file_gets_the_arms_and_stays_json(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "study.json"
            file.write_text((ROOT / "studies/league/c-4.7m.json").read_text())
            before = json.loads(file.read_text())["arms"]
            best.main(LEAGUE, file)
            after = json.loads(file.read_text())["arms"]
            self.assertEqual(len(after), len(before) + best.COUNT)
            self.assertEqual(list(after)[:len(before)], list(before))
            for arm in list(after)[len(before):]:
                self.assertEqual(after[arm], {"recipe": arm})


if __name__ == "__main__":
    unittest.main()
