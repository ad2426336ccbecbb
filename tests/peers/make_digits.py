#!/usr/bin/env python3
"""Writes tests/golden/digits: scikit-learn's handwritten digits (8 x 8, 0 to 16) as IDX files, 1500 and 297 of them.

The images are from the UCI repository (E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, CC BY 4.0).
"""
import pathlib
import struct

import numpy as np
from sklearn.datasets import load_digits

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "digits"
TRAINING = 1500

digits = load_digits()
images = np.minimum(digits.images * 16, 255).astype(np.uint8)
OUT.mkdir(parents=True, exist_ok=True)
for part, of in (("train", slice(0, TRAINING)), ("t10k", slice(TRAINING, None))):
    x, y = images[of], digits.target[of].astype(np.uint8)
    (OUT / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, len(x), 8, 8) + x.tobytes())
    (OUT / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(y)) + y.tobytes())
