"""Hugging Face's tokenizers and ours on random texts."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from local_service import BIN
from tokenizer_families import FAMILIES, TRICKY, case, random_texts


class Tokenizers(unittest.TestCase):
    def test_random_texts_become_the_same_tokens_in_every_family(self):
        for seed, (name, make) in enumerate(FAMILIES.items()):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                tokenizer = make()
                tokenizer.save(str(pathlib.Path(folder) / "tokenizer.json"))
                texts = TRICKY + list(random_texts(2000, seed))
                done = subprocess.run([BIN / "tokenizer_peer", folder], input="".join(json.dumps(t) + "\n" for t in texts),
                                      capture_output=True, text=True, timeout=300, check=True)
                answers = [json.loads(line) for line in done.stdout.splitlines()]
                self.assertEqual(len(answers), len(texts))
                for text, answer in zip(texts, answers):
                    expected = case(tokenizer, text)
                    self.assertEqual(answer["ids"], expected["ids"], repr(text))
                    self.assertEqual(answer["whole"], expected["whole"], repr(text))


if __name__ == "__main__":
    unittest.main()
