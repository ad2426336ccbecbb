"""Checkpoints that transformers writes are read as the same model."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import token_shard
from local_service import main
from peer_test_case import PeerTestCase, loss_of


class Checkpoint(PeerTestCase):
    def assert_read_as_the_same_model(self, shards, **changes):
        torch.manual_seed(7)
        config = LlamaConfig(**{**dict(
            vocab_size=1000, hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=5e4, initializer_range=0.2), **changes})
        model = LlamaForCausalLM(config).float().eval()
        for name, p in model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(p, 0.5, 1.5)
        folder = self.folder / "model"
        model.save_pretrained(folder, **({"max_shard_size": "300KB"} if shards else {}))
        self.assertEqual((folder / "model.safetensors.index.json").exists(), shards)
        tokens = self.folder / "tokens.bin"
        token_shard.write(tokens, torch.randint(0, config.vocab_size, (1025,)).numpy())
        figures, dump = self.evaluate(folder, tokens, 128, 1024)
        # Logits of several units: 1e-4 is 100 roundings of fp32.
        self.assert_same_logits(model, dump, 1e-4)
        self.assertAlmostEqual(figures["loss"], loss_of(model, tokens, 8, 128), delta=1e-5)

    def test_grouped_queries_and_an_untied_head(self):
        self.assert_read_as_the_same_model(shards=False)

    def test_a_tied_head(self):
        self.assert_read_as_the_same_model(shards=False, tie_word_embeddings=True)

    def test_several_files_with_an_index_and_a_head_for_each_query(self):
        self.assert_read_as_the_same_model(shards=True, num_key_value_heads=6)

    def test_several_files_of_a_tied_model(self):
        self.assert_read_as_the_same_model(shards=True, tie_word_embeddings=True)

    def test_heads_of_another_size_than_the_width_suggests(self):
        self.assert_read_as_the_same_model(shards=False, head_dim=24)


if __name__ == "__main__":
    main()
