"""The order in which peers read samples is that of a job: tests/golden/sampler.json, which the C++ test reads too."""

import json
import pathlib
import unittest

from sampler import Sampler

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "sampler.json"


class SamplerTest(unittest.TestCase):
    def test_order_is_that_of_the_golden_file(self):
        for order in json.loads(GOLDEN.read_text(encoding="utf-8")):
            sampler = Sampler(order["samples"], order["seed"])
            self.assertEqual([sampler.at(i) for i in range(64)], order["first"])


if __name__ == "__main__":
    unittest.main()
