"""A real Tessera with PyTorch and transformers beside it."""

import json
import random
import subprocess

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import token_shard
from local_service import BIN, ServiceTestCase

torch.set_num_threads(2)


def words(count, seed=1):
    """Text rich enough to learn pieces from, with characters of several bytes."""
    draw = random.Random(seed)
    letters = "aeiou" * 3 + "bcdfghklmnprst" + "\u00e9\u00fc\u4e2d\U0001f600"
    known = ["".join(draw.choice(letters) for _ in range(draw.randint(2, 7))) for _ in range(400)]
    return "\n".join(" ".join(draw.choice(known) for _ in range(9)) + "." for _ in range(count // 9)) + "\n"


class PeerTestCase(ServiceTestCase):
    def prepare(self, text, *options):
        path = self.folder / "text.txt"
        path.write_text(text, encoding="utf-8")
        self.tessera("data", "prepare", "--input", str(path), "--out", str(self.folder / "data"),
                     "--validation-fraction", "0.1", *options)

    def worker(self, *arguments):
        done = subprocess.run([BIN / "tessera-worker", *map(str, arguments)], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"tessera-worker {arguments}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def evaluate(self, model, data, length, tokens):
        """What tessera-worker says of a model: its figures, and tokens and logits of two samples."""
        dump = self.folder / "logits.safetensors"
        figures = json.loads(self.worker("eval", "--model", model, "--data", data, "--sequence-length", length,
                                         "--tokens", tokens, "--json", "--dump-logits", dump))
        return figures, load_file(dump)

    def assert_same_logits(self, model, dump, tolerance):
        with torch.no_grad():
            logits = model(dump["tokens"]).logits
        self.assertEqual(logits.shape, dump["logits"].shape)
        difference = (logits - dump["logits"]).abs().max().item()
        print(f"logits {tuple(logits.shape)} up to {logits.abs().max():.2f}: largest difference {difference:.1e}")
        self.assertLess(difference, tolerance)


def loss_of(model, shard, samples, length):
    """Nats per token of a shard's first samples."""
    rows = torch.from_numpy(token_shard.rows(token_shard.read(shard), range(samples), length))
    total = 0.0
    with torch.no_grad():
        for part in rows.split(16):
            logits = model(part[:, :-1]).logits
            total += F.cross_entropy(logits.flatten(0, 1).double(), part[:, 1:].flatten(), reduction="sum").item()
    return total / (samples * length)
