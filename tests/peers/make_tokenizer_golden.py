#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/<family>: a small tokenizer.json and what Hugging Face's tokenizers make of texts."""
import json
import pathlib

from tokenizer_families import FAMILIES, TRICKY, case

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers"

for name, make in FAMILIES.items():
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    begin = next((t for t in ("<s>", "<|begin_of_text|>") if tokenizer.token_to_id(t) is not None), "<|endoftext|>")
    end = "</s>" if tokenizer.token_to_id("</s>") is not None else "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": {"content": end}}, indent=1) + "\n")
    lines = [json.dumps(case(tokenizer, text)) for text in TRICKY]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
