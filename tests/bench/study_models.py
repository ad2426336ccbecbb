"""Models and data of the studies, as options of training_study."""
import collections
import json
import os
import pathlib
import re
import struct

CACHE = pathlib.Path(os.environ.get("TESSERA_CACHE", pathlib.Path.home() / ".cache/tessera"))
DATA = CACHE / "data/gcide-bytes"  # `./dev bench` prepares it: English text as bytes


def text():
    """Options for reading it byte by byte."""
    return {"vocab": 260, "train": str(DATA / "train-*.bin"), "validation": str(DATA / "validation-*.bin")}


def llama(a, _root):
    return {**({"config": llama_config(a.shape)} if a.shape else {"preset": a.preset}), "length": a.length, **text()}


def llama_config(shape):
    """shape: HIDDENxFFNxLAYERSxHEADS."""
    hidden, ffn, layers, heads = map(int, shape.split("x"))
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": ffn,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
            "head_dim": hidden // heads, "vocab_size": 260, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": False, "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02}


def digits(root):
    """scikit-learn's digits, as records of 32 x 32."""
    folder = root / "build/studies/digits"
    folder.mkdir(parents=True, exist_ok=True)
    return {"format": "images", "digits": str(folder), "length": 1, "evaluation-tokens": 0}


def resnet_config(depths):
    return {"model_type": "torchvision-resnet", "stem": "imagenet", "depths": depths, "widths": [32, 64], "image_size": 32,
            "num_labels": 10}


def resnet(_a, root):
    return {"config": resnet_config([3, 3]), **digits(root)}


def text_of(pattern):
    """The text that token shards of bytes were made of."""
    pieces = []
    for path in sorted(DATA.glob(pattern)):
        raw = path.read_bytes()
        tokens = raw[1024:]  # behind the header of 256 int32, the third of which counts them
        if len(tokens) != struct.unpack_from("<i", raw, 8)[0]:  # of two bytes each, special ones among them
            tokens = bytes(t for (t,) in struct.iter_unpack("<H", tokens) if t < 256)
        pieces.append(tokens)
    return b"".join(pieces).decode("utf-8", "ignore")


def bert(a, root):
    """A small BERT that fills in masked words of lines of the same text; the vocabulary is its 4,000 most frequent words,
    and letters for the others."""
    folder = root / "build/studies/lines"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "vocab.txt").exists():
        words = collections.Counter()
        for part in ("train", "validation"):
            lines = [line.strip() for line in re.split(r"(?<=[.;])\s+|\n", text_of(f"{part}-*.bin")) if len(line.split()) >= 6]
            (folder / f"{part}.txt").write_text("\n".join(line.replace("\t", " ") for line in lines[:200_000]) + "\n")
            if part == "train":
                words.update(word for line in lines for word in re.findall(r"[a-z]+", line.lower()))
        letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
        vocabulary = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters if c.isalnum()]
                      + [word for word, _ in words.most_common(4000) if len(word) > 1])
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = {"model_type": "bert", "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4,
              "num_attention_heads": 4, "vocab_size": len((folder / "vocab.txt").read_text().splitlines()),
              "max_position_embeddings": 128}
    return {"config": config, "format": "lines", "length": min(a.length, 64), "tokenizer": str(folder), "train": str(folder / "train.txt"),
            "validation": str(folder / "validation.txt")}


MODELS = {"llama": llama, "resnet": resnet, "bert": bert}
