#!/usr/bin/env python3
"""Compares an exported model with transformers: check_export.py EXPORT LOGITS [--tolerance 1e-4]

LOGITS is what `tessera-worker eval --dump-logits` wrote for the same folder. Checks that
AutoModelForCausalLM gives the same logits and that AutoTokenizer gives the same tokens and text.
Exit status 0 when both hold.
"""
import argparse
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("export")
parser.add_argument("logits")
parser.add_argument("--tolerance", type=float, default=1e-4)
args = parser.parse_args()

dump = load_file(args.logits)
model = AutoModelForCausalLM.from_pretrained(args.export, dtype=torch.float32).eval()
with torch.no_grad():
    logits = model(dump["tokens"]).logits
difference = (logits - dump["logits"]).abs().max().item()
print(f"logits {tuple(logits.shape)}: largest difference {difference:.2e} of {logits.abs().max().item():.2f}")
good = difference <= args.tolerance

if "text" in dump:
    tokenizer = AutoTokenizer.from_pretrained(args.export)
    text = bytes(dump["text"].tolist()).decode("utf-8", errors="replace")
    whole = "\ufffd" not in text  # a sample may begin inside a character
    decoded = tokenizer.decode(dump["tokens"].flatten(), clean_up_tokenization_spaces=False)
    if whole:
        same_text = decoded == text
        again = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
        print(f"tokenizer {type(tokenizer).__name__}: decodes as ours {same_text}, round trip {again == text}")
        good = good and same_text and again == text
        # Our pieces are encoded line by line and samples begin mid-line: ids are compared on whole lines.
        rows = tokenizer(text.split("\n")[1], add_special_tokens=False)["input_ids"] if "\n" in text else []
        print(f"ids of one line: {rows[:12]}")
sys.exit(0 if good else 1)
