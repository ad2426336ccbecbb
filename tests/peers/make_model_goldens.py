#!/usr/bin/env python3
"""Writes tests/golden/models/*.json: what the Python originals make of formula weights.

Each file holds the model's config, the logits in evaluation, the loss (sum over the targets) in training and, of a
few parameters, the norm and the first elements of the gradient. Inputs and weights are formulas (formula_weights.py).
"""
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision
from torchvision.models import resnet
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, SwinConfig,
                          SwinForImageClassification)

import formula_weights

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "models"


def save(name, config, model, run, parameters, names=None):
    """names: of modules, where files have others than the program."""
    formula_weights.fill(model, names or {})
    model.eval()
    with torch.no_grad():
        logits, _ = run(model)
    model.train()
    _, loss = run(model)
    loss.backward()
    named = {formula_weights.rename(n, names or {}): p for n, p in model.named_parameters()}
    gradients = {p: [named[p].grad.norm().item(), *named[p].grad.flatten()[:4].tolist()] for p in parameters}
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps({
        "config": config, "elements": sum(p.numel() for p in model.parameters()),
        "logits": [round(x, 6) for x in logits.flatten().tolist()], "loss": loss.item(), "gradients": gradients},
        indent=1) + "\n")
    print(name, logits.abs().max().item(), loss.item())


def images(rows, channels, size, classes):
    x = formula_weights.tensor("images", [rows, channels, size, size], 0, 3)
    y = torch.arange(rows) % classes

    def run(model):
        out = model(x)
        logits = out if torch.is_tensor(out) else out.logits
        return logits, F.cross_entropy(logits, y, reduction="sum")
    return run


def make_resnets():
    small = resnet.ResNet(resnet.BasicBlock, [2, 2, 2, 2], num_classes=10)
    small.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    small.maxpool = torch.nn.Identity()
    save("resnet18", {"model_type": "torchvision-resnet", "block": "basic", "stem": "cifar", "depths": [2, 2, 2, 2],
                      "widths": [64, 128, 256, 512], "image_size": 32, "num_labels": 10},
         small, images(4, 3, 32, 10),
         ["conv1.weight", "layer1.0.bn1.weight", "layer2.0.downsample.0.weight", "layer4.1.conv2.weight", "fc.bias"])
    save("resnet50", {"model_type": "torchvision-resnet", "block": "bottleneck", "stem": "imagenet",
                      "depths": [3, 4, 6, 3], "widths": [64, 128, 256, 512], "image_size": 64, "num_labels": 10},
         torchvision.models.resnet50(weights=None, num_classes=10), images(2, 3, 64, 10),
         ["conv1.weight", "layer1.0.downsample.0.weight", "layer2.0.conv2.weight", "layer4.2.bn3.bias", "fc.weight"])


HUB_NAMES = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "o_proj": "output.dense"}


def hub_names(model):
    """transformers' Swin has other names in memory than in its files, which are ours."""
    for path, module in list(model.named_modules()):
        name = path
        for ours, hub in HUB_NAMES.items():
            name = name.replace(f"attention.{ours}", f"attention.{hub}")
        name = name.replace("mlp.fc1", "intermediate.dense").replace("mlp.fc2", "output.dense")
        name = name.replace("attention.relative_position_bias", "attention.self")
        yield path, name


def make_swin():
    for file, options, rows in (
            ("swin", {"image_size": 32, "patch_size": 2, "embed_dim": 24, "depths": [2, 2, 2], "num_heads": [2, 3, 6],
                      "window_size": 4, "num_labels": 7}, 3),
            ("swin_t", {"num_labels": 10}, 1)):
        config = SwinConfig(**options, drop_path_rate=0.0)
        model = SwinForImageClassification(config)
        names = dict(hub_names(model))
        save(file, config.to_dict(), model, images(rows, 3, config.image_size, config.num_labels),
             ["swin.embeddings.norm.weight", "swin.encoder.layers.0.blocks.1.attention.self.query.weight",
              "swin.encoder.layers.0.blocks.1.attention.self.relative_position_bias_table",
              "swin.encoder.layers.1.downsample.reduction.weight", "swin.encoder.layers.2.blocks.0.intermediate.dense.bias",
              "swin.layernorm.bias"], names)


def make_bert():
    options = {"vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
               "intermediate_size": 40, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
               "attention_probs_dropout_prob": 0.0}
    tokens = (torch.arange(4 * 20) * 37 % 101).view(4, 20)
    padding = torch.arange(20)[None, :] >= torch.tensor([20, 13, 17, 5])[:, None]
    told = (torch.arange(4 * 20).view(4, 20) % 6 == 0) & ~padding
    for file, kind in (("bert_masked", BertForMaskedLM), ("bert_classes", BertForSequenceClassification)):
        config = BertConfig(**options, num_labels=3)
        config.architectures = [kind.__name__]
        model = kind(config)

        def run(model):
            logits = model(input_ids=tokens, attention_mask=(~padding).long()).logits
            if kind is BertForMaskedLM:
                loss = F.cross_entropy(logits[told], tokens[told], reduction="sum")
                return logits[told], loss  # of padded positions the originals differ among themselves
            return logits, F.cross_entropy(logits, torch.arange(4) % 3, reduction="sum")
        head = "cls.predictions.bias" if kind is BertForMaskedLM else "bert.pooler.dense.weight"
        save(file, config.to_dict(), model, run,
             ["bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
              "bert.encoder.layer.1.attention.self.key.weight", "bert.encoder.layer.2.output.LayerNorm.bias", head])


if __name__ == "__main__":
    makers = {name[5:]: make for name, make in list(globals().items()) if name.startswith("make_")}
    for name in sys.argv[1:] or makers:
        makers[name]()
