"""PyTorch's DistributedDataParallel or FSDP2 over Gloo on this machine: the peer of a dense Tessera job.

Trains the model of a config.json from the given weights (or initialises and saves them), on the samples that a
Tessera job with the same seed reads, and writes one JSON line per step: step, loss, learning_rate, gradient_norm,
step_seconds, tokens_per_second, peak_tensor_bytes, resident_bytes. One thread per rank.

    python torch_parallel.py --config config.json --weights DIR --data 'train-*.bin' --world 2 \\
        --steps 50 --batch 4 --sequence-length 256 --out peer.jsonl [--fsdp] [--checkpointing]
"""
import argparse
import ctypes
import glob
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import llama
import token_shard
from sampler import Sampler


class MemoryCounter:
    """The allocator wrapper of tessera-worker, loaded into this process; absent: zeros."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library) if library else None
        if self.library:
            self.library.tessera_peak_tensor_bytes.restype = ctypes.c_int64
            self.library.tessera_install_memory_counter()

    def peak(self):
        return self.library.tessera_peak_tensor_bytes() if self.library else 0


def peak_resident_bytes():
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def learning_rate(step, a):
    if step < a.warmup:
        return a.lr * (step + 1) / a.warmup
    x = (step - a.warmup) / max(1, a.steps - a.warmup)
    return a.lr * (a.final_ratio + (1 - a.final_ratio) * 0.5 * (1 + np.cos(np.pi * min(1.0, x))))


def parallel(model, a):
    """The module whose gradients are means over ranks: FSDP2 with a unit for each block, or DDP."""
    if a.fsdp:
        for layer in model.model.layers:
            fully_shard(layer)
        return fully_shard(model)
    return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


def train(rank, a, rendezvous):
    torch.set_num_threads(a.threads)
    counter = MemoryCounter(a.memory_counter)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=a.world)
    model = llama.Llama(llama.load_config(a.config))
    weights = load_file(os.path.join(a.weights, "model.safetensors"))
    model.load_state_dict(weights, strict=not model.config.get("tie_word_embeddings"))
    del weights
    model.checkpointing = a.checkpointing
    trained = parallel(model, a)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": a.weight_decay}, {"params": rest, "weight_decay": 0.0}],
                                  lr=a.lr, betas=(a.beta1, a.beta2), eps=1e-8, fused=True)
    shards = glob.glob(a.data)
    assert len(shards) == 1, f"the comparison reads one shard, {a.data} are {len(shards)}"
    tokens = token_shard.read(shards[0])
    t = a.sequence_length
    sampler = Sampler((len(tokens) - 1) // t, a.seed)
    out = open(a.out, "w", encoding="utf-8") if rank == 0 else None
    for step in range(a.steps):
        begin = time.perf_counter()
        first = (step * a.world + rank) * a.batch
        indices = [sampler.at(first + i) for i in range(a.batch)]
        rows = torch.from_numpy(token_shard.rows(tokens, indices, t))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, a)
        # Gradients are averaged over ranks, so the mean over all tokens is the sum over one rank's tokens.
        loss_sum = trained(rows[:, :-1], rows[:, 1:])
        (loss_sum / (a.batch * t)).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        norm = norm.full_tensor() if a.fsdp else norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss_sum.detach().clone()
        dist.all_reduce(total)
        seconds = time.perf_counter() - begin
        if out:
            out.write(json.dumps({"step": step + 1, "loss": total.item() / (a.world * a.batch * t),
                                  "learning_rate": learning_rate(step, a), "gradient_norm": norm.item(), "step_seconds": seconds,
                                  "tokens_per_second": a.world * a.batch * t / seconds, "peak_tensor_bytes": counter.peak(),
                                  "resident_bytes": peak_resident_bytes()}) + "\n")
            out.flush()
    dist.barrier()
    if a.save and rank == 0:
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, a.save)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", required=True)
    p.add_argument("--weights", required=True, help="folder with model.safetensors; made if it is not there")
    p.add_argument("--data", required=True)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence-length", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--final-ratio", type=float, default=0.1)
    p.add_argument("--beta1", type=float, default=0.9)
    p.add_argument("--beta2", type=float, default=0.95)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--memory-counter", default="", help="library that counts tensor bytes")
    p.add_argument("--out")
    p.add_argument("--save", default="", help="file for the weights at the end")
    p.add_argument("--only-initialise", action="store_true")
    p.add_argument("--fsdp", action="store_true", help="FSDP2, which reshards after forward, instead of DDP")
    p.add_argument("--checkpointing", action="store_true", help="recompute each block's activations in backward")
    a = p.parse_args()
    path = os.path.join(a.weights, "model.safetensors")
    if not os.path.exists(path):
        os.makedirs(a.weights, exist_ok=True)
        model = llama.Llama(llama.load_config(a.config))
        llama.initialise(model, a.seed)
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path, metadata={"format": "pt"})
    if not a.only_initialise:
        with tempfile.TemporaryDirectory(prefix="tessera-peer-") as folder:
            mp.spawn(train, args=(a, os.path.join(folder, "rendezvous")), nprocs=a.world)


if __name__ == "__main__":
    main()
