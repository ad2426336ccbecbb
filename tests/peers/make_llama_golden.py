#!/usr/bin/env python3
"""Writes tests/golden/llama/{tied,untied,bf16}.safetensors: a tiny random LLaMA with its logits and gradients.

Made with transformers' LlamaForCausalLM, so that the C++ model can be compared without Python.
Each file holds config.json in its metadata, the weights under their names, and golden.tokens,
golden.logits, golden.loss (sum over shifted targets) and golden.grad.<name> of a few parameters. bf16 has the untied
one's loss and gradients under torch.autocast in bf16, head and loss in fp32, and nothing else.
"""
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
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


def make_bf16():
    path = OUT / "untied.safetensors"
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])
    config.pop("attn_implementation", None)
    model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="sdpa")).float()
    stored = load_file(path)
    model.load_state_dict({n: t for n, t in stored.items() if not n.startswith("golden.")})
    tokens = stored["golden.tokens"]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(tokens).last_hidden_state
    logits = hidden.float() @ model.lm_head.weight.t()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    loss.backward()
    tensors = {"golden.grad." + n: p.grad.contiguous() for n, p in model.named_parameters()}
    tensors["golden.loss"] = loss.detach().reshape(1)
    save_file(tensors, str(OUT / "bf16.safetensors"))
    fp32 = [(n, (tensors[n] - g).norm() / g.norm()) for n, g in stored.items() if n.startswith("golden.grad.")]
    print("loss", loss.item(), "against", stored["golden.loss"].item(), [(n, f"{d:.1e}") for n, d in fp32])


OUT.mkdir(parents=True, exist_ok=True)
makers = {"tied": lambda: make(True), "untied": lambda: make(False), "bf16": make_bf16}
for name in sys.argv[1:] or makers:
    makers[name]()
