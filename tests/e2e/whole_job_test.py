"""From text to a model: what a finished job leaves, and whether what was predicted is what was measured."""

import json
import pathlib

from local_service import ServiceTestCase, main


class WholeJob(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()

    def test_four_workers_with_half_the_blocks_learn_and_leave_everything_promised(self):
        file = self.job_file(
            data={"sequence_length": 64}, workers={"count": 4, "batch": 2},
            subnetwork={"coverage": 0.5, "min_holders": 2}, schedule={"steps": 120},
            evaluation={"interval": 60, "tokens": 2048}, checkpoint={"interval": 40})
        training = self.start_tessera("train", file, "--no-sample")
        self.wait("the daemon", lambda: (self.state / "endpoint.json").exists())
        self.wait_for_step(5)
        while_running = self.rest("GET", "/metrics").text
        self.assertEqual(training.wait(timeout=300), 0, training.read())
        status = self.status()
        self.assertEqual(status["state"].lower(), "succeeded")
        self.assertEqual(int(status["step"]), 120)

        # Sentences of this grammar carry 0.95 nats per byte less than untrained guessing's 5.5;
        # 120 steps reach 1.2 with a wide margin.
        self.assertLess(float(status["validationLoss"]), 2.0)
        self.assertGreater(float(status["initialValidationLoss"]), 5.0)

        for worker in status["workers"]:
            self.assertAlmostEqual(int(worker["memoryPeakBytes"]) / int(worker["memoryPredictedBytes"]), 1, delta=0.03)
            self.assertAlmostEqual(
                int(worker["trafficBytesPerStep"]) / int(worker["trafficPredictedBytesPerStep"]), 1, delta=0.02)

        run = pathlib.Path(status["runDirectory"])
        self.assertTrue((pathlib.Path(status["checkpoint"]) / "manifest.json").is_file())
        model = pathlib.Path(status["exportedModel"])
        for file_name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            self.assertTrue((model / file_name).is_file(), file_name)
        steps = [line["step"] for line in self.metrics_lines(run) if "loss" in line]
        self.assertEqual(steps, list(range(1, 121)))
        self.assertTrue(list((run / "tensorboard").glob("events.out.tfevents.*")))

        self.assertEqual(json.loads(self.tessera("get", "tiny", "-o", "json").stdout), self.job())
        for series in ('tessera_worker_step{namespace="default",job="tiny",rank="3"}',
                       'tessera_worker_memory_bytes{namespace="default",job="tiny",rank="0",kind="peak"}',
                       'tessera_jobs{state="running"} 1'):
            self.assertIn(series, while_running)
        for rank in range(4):
            self.assertTrue(self.tessera("logs", "tiny", "--rank", str(rank)).stdout.strip(), f"log of rank {rank}")
        reasons = [event["reason"] for event in self.events()]
        for reason in ("Submitted", "WorkersStarted", "Training", "CheckpointWritten", "Completed"):
            self.assertIn(reason, reasons)
        self.assertIn("Completed", self.tessera("events", "tiny").stdout)
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))

    def test_the_same_job_twice_gives_the_same_weights(self):
        for name in ("one", "two"):
            self.tessera("train", self.job_file(name), "--no-sample")
        self.assert_same_weights(self.weights("one"), self.weights("two"))

    def test_train_again_says_that_it_has_succeeded_and_does_nothing(self):
        file = self.job_file()
        first = self.tessera("train", file, "--no-sample")
        self.assertIn("started the daemon", first.text)
        again = self.tessera("train", file, "--no-sample")
        self.assertNotIn("started the daemon", again.text)
        self.assertIn("has succeeded already", again.text)
        self.assertEqual(int(self.status()["epoch"]), 1)
        other = self.tessera("train", file, "--steps", "50", expect=2)
        self.assertIn("other settings", other.text)
        self.assertIn("spec.schedule.steps", other.text)


if __name__ == "__main__":
    main()
