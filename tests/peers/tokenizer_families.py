"""Small tokenizers of each family that Tessera reads, learnt by Hugging Face's tokenizers, and texts to try them on."""

import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

CORPUS = """The quick brown fox jumps over the lazy dog, and doesn't it? They're we've I'll he'd I'm SHE'S
Water boils at 100 degrees; in 1984 there were 123456 of them.   Spaces    and\ttabs.
na\u00efve caf\u00e9 \u00fcber stra\u00dfe \u4e2d\u6587 \u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \U0001f600\U0001f601
def f(x):\n    return x + 1  # comment\n\n\n    if x == 2:\n        pass
the the the then there them these those other another mother brother
""" * 3

TRICKY = [
    "", " ", "  ", "\n", "\n\n\n", " \n", "\t\t x", "a", " a", "a ", "  a  b  ", "Hello, world!", "don't DON'T Don'T we'LL x'S 's 'S",
    "\u2019s it\u2019s", "12 123 1234 12345678 1,234.5 \u00bd \u0663\u0664 \u2167 \u00b2", "a1b2c3", "x\r\ny\r\n\r\nz", "   indented\n      more",
    "trailing   ", "trailing\n  ", "caf\u00e9 cafe\u0301 \u00c5\u212b", "\u4e2d\u6587\u3002\u65e5\u672c\u8a9e \uff11\uff12", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "\u00a0nbsp\u3000ideographic\u2003em\u0085nel\u200bzero", "null\x00byte\x01\x7f",
    "\u2581literal \u2581\u2581mark", "<0x41> <0x0A>", "<s>hello</s> <unk>", "<|endoftext|>x<|endoftext|><|endoftext|>", "a <mask> b<mask>c  <mask>  ",
    "<|begin_of_text|>hi", "abc<tool>def <tool> ", "http://a.b/c?d=e&f=g#h", "{\"k\": [1, 2.5e-3, null]}", "\\n \\t $x_1^2$", "e\u0301\u0302\u0303", "\U00010348\U0001d11e",
    "the" * 50, " the" * 50, "ab" * 200, "!" * 40, "\u017fs '\u017f \u212a", "\ufeffbom", "\ufffd", "\u0e44\u0e17\u0e22 \u0915\u094d\u0937", "\u1e9e\u0130\u0131", "_x_ __y__", "\u0660\u0661a\u0662",
]


def random_texts(count, seed):
    draw = random.Random(seed)
    pieces = ["the", " The", "n't", "'s", " ", "  ", "\n", "\r\n", "\t", "1", "42", "\u00bd", "\u0663", "\u4e2d", "\u00e9", "e\u0301", "\U0001f600", "\u200d", "\u2581", ".", "...", "-",
              "_", "<s>", "<|endoftext|>", "<mask>", "\u00a0", "\u3000", "x", "X", "\u0416", "\x00", "<tool>", "'", "\"", "\u2028", "\u0301", "\u1680"]
    for _ in range(count):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 30)))
        if draw.random() < 0.3:
            text += "".join(chr(c) for c in (draw.randint(1, 0x2fff) for _ in range(8)))
        yield text


def learn(pre_tokenizer, alphabet, size):
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizer
    learner.train_from_iterator(CORPUS.splitlines(keepends=True),
                                trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(learner.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def byte_level(pre_tokenizer, extra=(), size=420, **options):
    vocabulary, merges = learn(pre_tokenizer, pre_tokenizers.ByteLevel.alphabet(), size)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, **options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>", *extra])
    return tokenizer


def sentence_piece(with_bytes=True, fuse=True):
    vocabulary, merges = learn(pre_tokenizers.Metaspace(), [], 300)
    pieces = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if with_bytes else [])
    pieces += [piece for piece, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=fuse,
                                     byte_fallback=with_bytes))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama3():
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(split, extra=["<|begin_of_text|>"], ignore_merges=True)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def digits():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def prefix_space():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<s>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("the then", normalized=True)])
    return tokenizer


def llama2():
    tokenizer = sentence_piece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace():
    tokenizer = sentence_piece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])
    return tokenizer


def unknown():
    tokenizer = sentence_piece(with_bytes=False, fuse=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


FAMILIES = {f.__name__: f for f in (gpt2, llama3, digits, prefix_space, llama2, metaspace, unknown)}


def case(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "whole": tokenizer.encode(text).ids, "decoded": tokenizer.decode(ids)}
