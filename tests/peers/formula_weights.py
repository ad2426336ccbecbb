"""Weights as a formula of their name, the same as in tests/worker/models/formula_weights.h."""
import math

import numpy as np
import torch


def numbers(name, count):
    stream = 2166136261
    for byte in name.encode():
        stream = ((stream ^ byte) * 16777619) & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        x = np.uint32(stream) ^ (np.arange(count, dtype=np.uint32) * np.uint32(2654435761))
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        x = x ^ (x >> np.uint32(16))
    return x.astype(np.float64) * 2.0**-32 - 0.5


def tensor(name, dims, offset, scale):
    count = int(np.prod(dims, dtype=np.int64))
    return torch.from_numpy((offset + scale * numbers(name, count)).astype(np.float32).reshape(tuple(dims)))


def weight(name, dims):
    if len(dims) == 1:
        if name.endswith("running_mean"):
            return tensor(name, dims, 0, 0.4)
        if name.endswith("running_var"):
            return tensor(name, dims, 1, 0.5)
        return tensor(name, dims, 0 if name.endswith("bias") else 1, 0.4)
    if "embedding" in name or name.endswith("bias_table"):
        return tensor(name, dims, 0, 1)
    return tensor(name, dims, 0, math.sqrt(12 / math.prod(dims[1:])))


def rename(name, modules):
    module, _, leaf = name.rpartition(".")
    return f"{modules.get(module, module)}.{leaf}"


def fill(model, modules):
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point():
                value.copy_(weight(rename(name, modules), list(value.shape)))
