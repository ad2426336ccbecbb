"""The recipes of images and texts run as they are written, shortened and on made-up data."""

import random
import shutil
from pathlib import Path

from local_service import ServiceTestCase, english, main

RECIPES = Path(__file__).resolve().parents[2] / "deploy" / "recipes"
SHORT = ["--steps", "3", "--set", "spec.schedule.warmupSteps=null"]
SMALL = ["--no-sample", "--set", "spec.workers.batch=2", "--set", "spec.evaluation.tokens=64"]


class Recipes(ServiceTestCase):
    def write_images(self, count=32):
        """CIFAR-10 records: a label and 3 x 32 x 32 bytes; images of a class share a colour."""
        (self.folder / "data").mkdir()
        noise = random.Random(1)
        for name in ("data_batch_1.bin", "test_batch.bin"):
            records = [bytes([i % 10]) + bytes((i % 10 * 20 + noise.randrange(40)) for _ in range(3072))
                       for i in range(count)]
            (self.folder / "data" / name).write_bytes(b"".join(records))

    def train(self, recipe, *changes, length=SHORT, expect=0):
        shutil.copy(RECIPES / recipe, self.folder)  # its paths are relative to it
        return self.tessera("train", recipe, *SMALL, *length, *changes, expect=expect)

    def assert_succeeded(self, name, classifier):
        status = self.status(name)
        self.assertEqual(status["state"].lower(), "succeeded")
        self.assertGreater(float(status["validationLoss"]), 0)
        self.assertEqual("validationAccuracy" in status, classifier)

    def test_resnet_trains_on_cifar_records(self):
        self.write_images()
        self.train("resnet18-cifar.yaml")
        self.assert_succeeded("resnet18-cifar", classifier=True)

    def test_resnet_trains_in_channels_with_shards_and_sgd(self):
        self.write_images()
        self.train("resnet18-cifar.yaml", "--set", "spec.model.preset=resnet20-cifar",
                   "--set", "spec.subnetwork.granularity=neuron", "--set", "spec.sharding=fsdp",
                   "--set", "spec.optimizer.name=sgd", "--set", "spec.optimizer.momentum=0.9")
        self.assert_succeeded("resnet18-cifar", classifier=True)

    def test_swin_trains_on_cifar_records(self):
        self.write_images()
        self.train("swin-cifar.yaml")
        self.assert_succeeded("swin-cifar", classifier=True)

    def test_bert_trains_on_lines_and_an_epoch_is_as_long_as_the_lines(self):
        (self.folder / "data").mkdir()
        for name in ("train.txt", "validation.txt"):
            text = english(30).replace(". ", ".\n").splitlines()
            (self.folder / "data" / name).write_text("\n".join(text[:20]) + "\n")
        self.train("bert.yaml", length=["--set", "spec.schedule.steps=null", "--set", "spec.schedule.epochs=1"])
        self.assert_succeeded("bert", classifier=False)
        lines = len((self.folder / "data" / "train.txt").read_text().splitlines())
        self.assertEqual(int(self.status("bert")["step"]), -(-lines // 8))

    def test_tokens_are_no_data_for_a_model_of_images_and_the_reverse(self):
        self.prepare_data()
        said = self.train("resnet18-cifar.yaml", "--set", "spec.data.format=tokens",
                          "--set", "spec.data.sequenceLength=64", expect=2)
        self.assertIn("spec.data.train: token shards train models that predict the next token", said.text)
        for part in (self.folder / "data").iterdir():
            part.unlink()
        (self.folder / "data").rmdir()
        self.write_images()
        said = self.train("bert.yaml", "--set", "spec.data={format: images, train: data, validation: data}",
                          expect=2)
        self.assertIn("spec.data", said.text)
        self.assertIn("image", said.text)


if __name__ == "__main__":
    main()
