"""What a job exports is what it trained, to transformers."""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

import token_shard
from local_service import english, main
from peer_test_case import PeerTestCase, loss_of, words

LENGTH = 64
TOKENS = 4096


class Export(PeerTestCase):
    def train(self, **changes):
        """Workers that hold every second block between the first and the last."""
        self.tessera("train", "--no-sample", self.job_file(
            data={"sequence_length": LENGTH}, workers={"count": 2, "batch": 4},
            optimizer={"learning_rate": 5e-3}, schedule={"steps": 20, "warmup_steps": 2},
            evaluation={"tokens": TOKENS}, **changes))
        status = self.status()
        manifest = json.loads((pathlib.Path(status["checkpoint"]) / "manifest.json").read_text())
        self.assertIn(0.5, [unit["holder_share"] for unit in manifest["units"]], "no block was masked")
        return status

    def assert_is_what_the_job_says(self, status):
        export = status["exportedModel"]
        model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32).eval()
        self.assertIsInstance(model, LlamaForCausalLM)
        validation = self.folder / "data" / "validation-00000.bin"
        figures, dump = self.evaluate(export, validation, LENGTH, TOKENS)
        # fp32 sums in another order: 1e-6 of logits of a few units; 1e-4 leaves room for other machines.
        self.assert_same_logits(model, dump, 1e-4)
        theirs = loss_of(model, validation, TOKENS // LENGTH, LENGTH)
        ours = float(status["validationLoss"])
        print(f"loss: the job {ours:.6f}, eval of the export {figures['loss']:.6f}, transformers {theirs:.6f}")
        self.assertEqual(figures["tokens"], TOKENS)
        self.assertAlmostEqual(theirs, figures["loss"], delta=1e-4)
        self.assertAlmostEqual(theirs, ours, delta=1e-4)
        # The residual scale is no detail: without it the loss is another.
        plain = self.folder / "unscaled"
        self.worker("export", "--checkpoint", status["checkpoint"], "--out", plain, "--residual-scale", "none")
        unscaled = loss_of(AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32), validation,
                           TOKENS // LENGTH, LENGTH)
        print(f"loss without the evaluation scale {unscaled:.6f}")
        self.assertGreater(abs(unscaled - theirs), 1e-3)

    def assert_same_tokenizer(self, status, text, vocabulary):
        export = status["exportedModel"]
        tokenizer = AutoTokenizer.from_pretrained(export)
        self.assertEqual(len(tokenizer), vocabulary)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        self.assertEqual(tokenizer.decode(ids, clean_up_tokenization_spaces=False), text)
        return ids

    def test_a_job_on_bytes_is_the_same_model_and_tokenizer_in_transformers(self):
        self.prepare(english(6000))
        status = self.train()
        self.assert_is_what_the_job_says(status)
        text = "the cat sees a t\u00e9l\u00e9 \U0001f600.\n  two spaces"
        self.assertEqual(self.assert_same_tokenizer(status, text, 260), list(text.encode()))

    def test_a_job_on_learnt_pieces_is_the_same_model_and_tokenizer_in_transformers(self):
        text = words(60000)
        self.prepare(text, "--tokenizer", "bpe", "--vocab-size", "600")
        status = self.train()
        self.assert_is_what_the_job_says(status)
        lines = text.splitlines(keepends=True)
        # Shards are encoded line by line: the text's first block is training data from its first line on.
        ids = [i for line in lines[:20] for i in self.assert_same_tokenizer(status, line, 600)]
        shard = token_shard.read(self.folder / "data" / "train-00000.bin")
        self.assertEqual(ids, shard[:len(ids)].tolist())

    def test_a_job_that_asked_for_no_residual_scale_is_exported_without(self):
        self.prepare(english(3000))
        status = self.train(subnetwork={"residual_scale": "none"})
        again = self.folder / "again"
        self.worker("export", "--checkpoint", status["checkpoint"], "--out", again)
        self.worker("export", "--checkpoint", status["checkpoint"], "--out", self.folder / "none", "--residual-scale", "none")
        self.worker("export", "--checkpoint", status["checkpoint"], "--out", self.folder / "scaled", "--residual-scale", "evaluation")
        read = lambda folder: (pathlib.Path(folder) / "model.safetensors").read_bytes()
        self.assertEqual(read(again), read(status["exportedModel"]))
        self.assertEqual(read(again), read(self.folder / "none"))
        self.assertNotEqual(read(again), read(self.folder / "scaled"))
        model = AutoModelForCausalLM.from_pretrained(again, dtype=torch.float32)
        loss = loss_of(model, self.folder / "data" / "validation-00000.bin", TOKENS // LENGTH, LENGTH)
        self.assertAlmostEqual(loss, float(status["validationLoss"]), delta=1e-4)


if __name__ == "__main__":
    main()
