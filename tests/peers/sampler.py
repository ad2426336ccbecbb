"""The order in which a Tessera job reads its samples: a Python reading of worker/data/sampler.cc."""

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def permute(value, half_bits, key):
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for i in range(6):
        left, right = right, left ^ (mix((key + i + (right << 8)) & MASK) & mask)
    return left << half_bits | right


class Sampler:
    def __init__(self, samples, seed):
        self.samples, self.seed = samples, seed
        self.half_bits = max(1, ((samples - 1).bit_length() + 1) // 2)

    def at(self, position):
        """Index of the sample at this position of the run; each pass over the data has its own order."""
        key = mix((mix(self.seed) + position // self.samples) & MASK)
        value = position % self.samples
        while True:
            value = permute(value, self.half_bits, key)
            if value < self.samples:
                return value
