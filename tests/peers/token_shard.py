"""Token shards (worker/data/shard_format.h) in Python."""

import numpy as np

DTYPES = {20240520: np.uint16, 20240801: np.uint32, 20261129: np.uint8}
VERSIONS = {20240520: 1, 20240801: 7, 20261129: 1}


def read(path):
    header = np.fromfile(path, dtype="<i4", count=256)
    return np.memmap(path, dtype=DTYPES[int(header[0])], mode="r", offset=1024, shape=(int(header[2]),))


def write(path, tokens, magic=20240520):
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, VERSIONS[magic], len(tokens)
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(np.asarray(tokens, dtype=DTYPES[magic]).tobytes())


def rows(tokens, indices, length):
    """Samples with the token that follows each, [indices, length + 1] int64."""
    return np.stack([tokens[i * length:(i + 1) * length + 1].astype(np.int64) for i in indices])
