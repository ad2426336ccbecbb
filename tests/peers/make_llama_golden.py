#!/usr/bin/env python3
"""Writes tests/golden/llama/{tied,untied}.safetensors: a tiny random LLaMA with its logits and gradients.

Made with transformers' LlamaForCausalLM, so that the C++ model can be compared without Python.
Each file holds config.json in its metadata, the weights under their names, and golden.tokens,
golden.logits, golden.loss (sum over shifted targets) and golden.grad.<name> of a few parameters.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "llama"


def make(tied):
    torch.manual_seed(20 + tied)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        initializer_range=0.3, attn_implementation="eager")
    model = LlamaForCausalLM(config).float()
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(p, 0.5, 1.5)
    tokens = torch.randint(0, config.vocab_size, (2, 24))
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    loss.backward()
    tensors = {n: p.detach().contiguous() for n, p in model.named_parameters()}
    for name in ("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight",
                 "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight"):
        tensors["golden.grad." + name] = dict(model.named_parameters())[name].grad.contiguous()
    tensors["golden.tokens"] = tokens
    tensors["golden.logits"] = logits.detach().contiguous()
    tensors["golden.loss"] = loss.detach().reshape(1)
    save_file(tensors, str(OUT / ("tied.safetensors" if tied else "untied.safetensors")),
              metadata={"config": json.dumps(config.to_dict())})


OUT.mkdir(parents=True, exist_ok=True)
make(True)
make(False)
