"""Ctrl-C, suspend and resume: nothing is lost, and the result is that of an uninterrupted run."""

import os
import pathlib
import re
import signal

from local_service import PATIENCE, ServiceTestCase, main


class Interrupt(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()
        self.changes = {"workers": {"count": 2}, "schedule": {"steps": 300}}

    def assert_suspended(self, text):
        status = self.status()
        self.assertEqual(status["state"].lower(), "suspended")
        step = int(status["step"])
        self.assertGreater(step, 0)
        self.assertRegex(text, rf"suspended at step {step}\. Go on: tessera train \S+")
        checkpoint = pathlib.Path(status["checkpoint"])
        self.assertEqual(int(re.fullmatch(r"step-0*(\d+)", checkpoint.name)[1]), step)
        self.assertTrue((checkpoint / "manifest.json").is_file())
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))
        return step

    def wait_for_daemon_and_step(self, step):
        self.wait("the daemon", lambda: (self.state / "endpoint.json").exists())
        self.wait_for_step(step)

    def test_interrupted_without_a_terminal_it_suspends_and_goes_on_to_the_same_weights(self):
        file = self.job_file(**self.changes)
        training = self.start_tessera("train", file, "--no-sample")
        self.wait_for_daemon_and_step(10)
        training.send_signal(signal.SIGINT)
        self.assertEqual(training.wait(timeout=120), 4, training.read())
        step = self.assert_suspended(training.read())
        again = self.tessera("train", file, "--no-sample", timeout=300)
        self.assertIn(f"resuming tiny from step {step}", again.text)
        status = self.status()
        steps = [line["step"] for line in self.metrics_lines(status["runDirectory"]) if "loss" in line]
        self.assertEqual(steps, list(range(1, 301)))
        self.tessera("train", self.job_file("uninterrupted", **self.changes), "--no-sample", timeout=300)
        self.assert_same_weights(self.weights(), self.weights("uninterrupted"))

    def test_interrupted_on_a_terminal_it_suspends_and_fresh_begins_anew(self):
        file = self.job_file(**self.changes)
        terminal = self.start_in_terminal("train", file, "--no-sample")
        self.wait_for_daemon_and_step(10)
        terminal.type(b"\x03")
        code = self.wait("the command to end", lambda: [c for c in [terminal.poll()] if c is not None])
        self.assertEqual(code, [4], terminal.output.decode(errors="replace"))
        self.assert_suspended(terminal.output.decode(errors="replace"))
        old = self.run_directory()
        fresh = self.tessera("train", file, "--fresh", "--no-sample", timeout=300)
        self.assertIn("deleting tiny (SUSPENDED) and its checkpoints", fresh.text)
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["epoch"]), 1)
        self.assertNotEqual(pathlib.Path(status["runDirectory"]), old)
        self.wait("the old files to be gone", lambda: not old.exists())

    def test_second_interrupt_leaves_at_once_and_the_job_still_stops_with_a_checkpoint(self):
        training = self.start_tessera("train", self.job_file(workers={"count": 2}, schedule={"steps": 100000}))
        self.wait_for_daemon_and_step(2)
        training.send_signal(signal.SIGINT)
        self.wait("the first to be seen", lambda: "stopping after a checkpoint" in training.read()
                  or training.poll() is not None)
        training.send_signal(signal.SIGINT)
        self.assertIn(training.wait(timeout=PATIENCE), (130, 4), training.read())  # 4: it had stopped already
        status = self.wait_for_state("suspended")
        self.assertTrue(pathlib.Path(status["checkpoint"]).is_dir())

    def test_interrupted_before_the_first_step_it_suspends_and_begins_when_run_again(self):
        file = self.job_file()
        training = self.start_tessera("train", file, "--no-sample")
        self.wait("workers", lambda: len(self.processes("tessera-worker")) >= 2)
        self.wait("the job to be watched", lambda: "Starting" in training.read())
        training.send_signal(signal.SIGINT)
        code = training.wait(timeout=120)
        if code == 0:
            self.skipTest("it was faster than the interrupt")
        self.assertEqual(code, 4, training.read())
        self.tessera("train", file, "--no-sample")
        self.assertEqual(int(self.status()["step"]), 40)

    def test_interrupted_watching_ends_and_the_job_goes_on(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 400}))
        self.wait_for_step(2)
        watching = self.start_tessera("watch", "tiny")
        self.wait("it to watch", lambda: "step" in watching.read())
        watching.send_signal(signal.SIGINT)
        self.assertEqual(watching.wait(timeout=PATIENCE), 130, watching.read())
        self.assertIn("the job goes on", watching.read())
        self.wait_for_state("succeeded")

    def test_terminal_closed_the_job_goes_on(self):
        terminal = self.start_in_terminal("train", self.job_file(schedule={"steps": 300}), "--no-sample")
        self.wait_for_daemon_and_step(5)
        terminal.read()
        terminal.close()
        self.wait("the command line to be hung up", lambda: terminal.poll() is not None)
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["epoch"]), 1)
        self.assertEqual(int(status.get("restarts", 0)), 0)

    def test_fresh_begins_anew_also_where_the_user_names_the_checkpoints_folder(self):
        kept = self.folder / "kept"
        file = self.job_file(schedule={"steps": 40}, checkpoint={"uri": str(kept), "interval": 20})
        self.tessera("train", file, "--no-sample")
        self.assertEqual(len(list(kept.glob("tiny-*/step-00000040/manifest.json"))), 1)
        first = self.weights()
        old = self.run_directory()
        self.tessera("train", file, "--fresh", "--no-sample")
        self.wait("the old files to be gone", lambda: not old.exists())
        status = self.status()
        steps = [line["step"] for line in self.metrics_lines(status["runDirectory"]) if "loss" in line]
        self.assertEqual(steps, list(range(1, 41)), "it did not train anew")
        self.assert_same_weights(first, self.weights())
        self.assertEqual(len(list(kept.glob("tiny-*/step-00000040/manifest.json"))), 2, "the user's are not deleted")

    def test_cancelled_job_keeps_its_checkpoints_until_fresh_is_asked_for(self):
        self.start_daemon()
        file = self.job_file(schedule={"steps": 100000})
        self.tessera("submit", file)
        self.wait_for_step(2)
        self.tessera("cancel", "tiny")
        checkpoint = pathlib.Path(self.wait_for_state("cancelled")["checkpoint"])
        refused = self.tessera("train", file, expect=2)
        self.assertIn(str(checkpoint), refused.text)
        self.assertIn("--fresh", refused.text)
        self.assertTrue(checkpoint.is_dir())
        self.tessera("train", self.job_file(), "--fresh", "--no-sample")
        self.wait("the old files to be gone", lambda: not checkpoint.exists())

    def test_suspend_and_resume_by_command(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 400}))
        self.wait_for_step(3)
        self.tessera("suspend", "tiny")
        step = int(self.wait_for_state("suspended")["step"])
        self.kill_daemon()  # a suspended job survives its daemon
        self.start_daemon()
        self.assertEqual(self.state_of(), "suspended")
        self.tessera("resume", "tiny")
        status = self.wait_for_state("succeeded")
        self.assertGreater(int(status["step"]), step)
        self.assertEqual(int(status.get("restarts", 0)), 0)
        self.assertEqual(os.listdir(self.state / "jobs"), [self.job()["uid"]])


if __name__ == "__main__":
    main()
