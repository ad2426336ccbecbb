"""Made-up items of the five multiple-choice tasks, as their data sets have them."""

import json
import random

WORDS = "sun moon water ice plant animal rock light heat sound energy root leaf wolf cell gas salt iron wind rain seed".split()


def sentence(draw, low=3, high=9):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(low, high)))


def choices(draw, count, labels):
    texts = [sentence(draw, 1, 5) + draw.choice(["", ".", " \u00e9t\u00e9", "  two"]) for _ in range(count)]
    return {"text": texts, "label": list(labels[:count])}


def items(task, count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        if task == "arc_easy":
            labels = draw.choice(["ABCDE", "12345"])
            options = choices(draw, draw.choice([3, 4, 5]), labels)
            yield {"id": "x", "question": sentence(draw) + "?", "choices": options, "answerKey": draw.choice(options["label"])}
        elif task == "openbookqa":
            options = choices(draw, 4, "ABCD")
            yield {"id": "x", "question_stem": sentence(draw) + draw.choice(["", " ", "?"]), "choices": options,
                   "answerKey": draw.choice("ABCD")}
        elif task == "boolq":
            yield {"question": sentence(draw), "passage": " ".join(sentence(draw, 9, 9) for _ in range(draw.randint(1, 8))), "idx": 0,
                   "label": draw.randint(0, 1)}
        elif task == "hellaswag":
            mark = lambda text: draw.choice(["", "[header] ", "[step] "]) + text + draw.choice(["", " [title] " + sentence(draw, 1, 2), " "])
            yield {"ind": 1, "activity_label": sentence(draw, 1, 2), "ctx_a": mark(sentence(draw)), "ctx_b": draw.choice(["", "She", "\u00e9TANT il"]),
                   "ctx": "", "endings": [mark(sentence(draw)) for _ in range(4)], "label": str(draw.randint(0, 3))}
        elif task == "sciq":
            yield {"question": sentence(draw) + "?", "distractor1": sentence(draw, 1, 2), "distractor2": sentence(draw, 1, 2),
                   "distractor3": sentence(draw, 1, 2), "correct_answer": sentence(draw, 1, 2),
                   "support": draw.choice(["", "  "]) + sentence(draw, 0, 30)}


def write(path, task, count, seed):
    path.write_text("".join(json.dumps(item) + "\n" for item in items(task, count, seed)))
