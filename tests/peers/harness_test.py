"""Our scores of the five tasks and those of lm-evaluation-harness, on the same files with the same model."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import task_items
from local_service import BIN
from tokenizer_families import FAMILIES

YAMLS = {"arc_easy": "arc/arc_easy.yaml", "boolq": "super_glue/boolq/default.yaml", "hellaswag": "hellaswag/hellaswag.yaml",
         "openbookqa": "openbookqa/openbookqa.yaml", "sciq": "sciq/sciq.yaml"}
ITEMS = 40


class Harness(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def save_model(self, family, max_length):
        tokenizer = FAMILIES[family]()
        torch.manual_seed(11)
        config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=max_length,
                             initializer_range=0.3)
        LlamaForCausalLM(config).float().save_pretrained(self.folder / "model")
        names = {"bos_token": "<s>", "eos_token": "</s>"} if "llama2" in family else {"eos_token": "<|endoftext|>"}
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(self.folder / "model")

    def theirs(self, tasks):
        """By the harness's own task files, of which the data set alone is replaced."""
        configs = []
        for task, path in tasks.items():
            source = pathlib.Path(lm_eval.__file__).parent / "tasks" / YAMLS[task]
            files = {split: str(path) for split in ("train", "validation", "test")}
            (self.folder / f"{task}.yaml").write_text(
                f"include: {source}\ntask: local_{task}\ndataset_path: json\ndataset_name: null\n"
                f"dataset_kwargs: {{data_files: {json.dumps(files)}}}\n")
            configs.append(f"local_{task}")
        model = HFLM(pretrained=str(self.folder / "model"), dtype="float32", device="cpu", batch_size=4)
        done = lm_eval.simple_evaluate(model=model, tasks=configs, log_samples=True, bootstrap_iters=100,
                                       task_manager=TaskManager(include_path=str(self.folder), include_defaults=False))
        return done

    def compare(self, family, max_length):
        self.save_model(family, max_length)
        tasks = {task: self.folder / f"{task}.jsonl" for task in YAMLS}
        for seed, (task, path) in enumerate(tasks.items()):
            task_items.write(path, task, ITEMS, seed)
        options = [option for task, path in tasks.items() for option in ("--task", f"{task}={path}")]
        done = subprocess.run([BIN / "tessera-worker", "eval", "--model", self.folder / "model", "--json", *options],
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = json.loads(done.stdout)["tasks"]
        theirs = self.theirs(tasks)["results"]
        for task in tasks:
            for metric in ("acc", "acc_norm"):
                mean = theirs[f"local_{task}"].get(f"{metric},none")
                self.assertEqual(mean is None, metric not in ours[task], f"{task} {metric}")
                if mean is None:
                    continue
                print(f"{family} {task} {metric}: {ours[task][metric]:.4f}, harness {mean:.4f}")
                self.assertAlmostEqual(ours[task][metric], mean, places=9, msg=f"{task} {metric}")
                error = theirs[f"local_{task}"].get(f"{metric}_stderr,none")
                if isinstance(error, float):
                    self.assertAlmostEqual(ours[task][f"{metric}_stderr"], error, places=9, msg=f"{task} {metric}")
        return ours

    def test_byte_level_pieces_score_as_in_the_harness(self):
        self.compare("gpt2", 2048)

    def test_sentence_pieces_with_a_begin_token_and_cut_contexts_score_as_in_the_harness(self):
        ours = self.compare("llama2", 96)
        self.assertGreater(ours["boolq"]["truncated"], 0)


if __name__ == "__main__":
    unittest.main()
