"""A worker is lost: the job says which and why, and follows its retry policy."""

import os
import signal
import subprocess

from local_service import BIN, ServiceTestCase, main


class WorkerFailure(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()
        self.start_daemon()

    def submit(self, **changes):
        changes = {"workers": {"count": 3}, "retry": {"backoff": "0.1s"}, **changes}
        self.tessera("submit", self.job_file(**changes))

    def warnings(self):
        return [event for event in self.events() if event["type"] == "Warning"]

    def test_killed_worker_is_named_and_the_job_restarts_from_its_checkpoint_to_the_same_weights(self):
        changes = {"workers": {"count": 3}, "schedule": {"steps": 200}, "checkpoint": {"interval": 20}}
        self.submit(**changes)
        self.wait("a checkpoint", lambda: self.status().get("checkpoint"))
        first = self.pids_of()
        os.kill(first[2], signal.SIGKILL)
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["restarts"]), 1)
        self.assertEqual(int(status["epoch"]), 2)
        (warning,) = self.warnings()
        self.assertEqual(warning["reason"], "WorkerKilled")
        self.assertIn("worker 2 was killed by signal 9 (SIGKILL)", warning["message"])
        self.assertFalse(set(first) & set(self.pids_of()))
        log = self.tessera("logs", "tiny", "--rank", "0", "--epoch", "2").stdout
        self.assertRegex(log, r"resum|checkpoint", "epoch 2 began from a checkpoint")
        steps = [line["step"] for line in self.metrics_lines(status["runDirectory"]) if "loss" in line]
        self.assertEqual(steps, list(range(1, 201)), "each step once, those after the checkpoint from the restart")

        self.tessera("train", self.job_file("uninterrupted", **changes), "--no-sample")
        self.assert_same_weights(self.weights(), self.weights("uninterrupted"))

    def test_without_retries_the_job_fails_and_names_rank_and_signal(self):
        self.submit(schedule={"steps": 100000}, retry={"infrastructure": 0})
        self.wait_for_step(2)
        os.kill(self.pids_of()[1], signal.SIGKILL)
        status = self.wait_for_state("failed")
        self.assertIn("worker 1 was killed by signal 9 (SIGKILL)", status["message"])
        self.assertIn("worker 1", status["workers"][1]["lastError"])
        self.assertFalse(status["workers"][0].get("lastError", ""), "only the culprit is accused")
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))
        self.assertIn("worker 1 was killed by signal 9", self.tessera("watch", "tiny", expect=1).text)
        shown = self.tessera("train", self.job_file(workers={"count": 3}, schedule={"steps": 30}), "--no-sample")
        self.assertIn("left no checkpoint; beginning anew", shown.text)

    def test_crash_is_the_applications_fault_and_not_retried_by_default(self):
        self.submit(schedule={"steps": 100000})
        self.wait_for_step(2)
        os.kill(self.pids_of()[0], signal.SIGSEGV)
        status = self.wait_for_state("failed")
        self.assertIn("worker 0 crashed with signal 11 (SIGSEGV)", status["message"])

    def test_worker_ended_politely_from_outside_writes_a_checkpoint_and_the_job_goes_on(self):
        self.submit(schedule={"steps": 200})
        self.wait_for_step(5)
        os.kill(self.pids_of()[1], signal.SIGTERM)
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["restarts"]), 1)
        (warning,) = self.warnings()
        self.assertEqual(warning["reason"], "WorkerStopped")
        steps = [line["step"] for line in self.metrics_lines(status["runDirectory"]) if "loss" in line]
        self.assertEqual(steps, list(range(1, 201)), "nothing was done twice")

    def test_worker_that_is_stopped_beyond_the_step_deadline_is_named(self):
        self.submit(schedule={"steps": 100000}, retry={"infrastructure": 0}, deadlines={"step": "3s"})
        self.wait_for_step(2)
        os.kill(self.pids_of()[1], signal.SIGSTOP)
        status = self.wait_for_state("failed")
        self.assertEqual(status["reason"], "StepDeadlineExceeded")
        self.assertIn("worker 1 ", status["message"])
        self.assertIn("within 3s", status["message"])
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))

    def test_worker_that_is_stopped_while_it_starts_is_named_whatever_it_was_about_to_do(self):
        phases = ("start", "rendezvous", "first_step", "step", "checkpoint")
        self.submit(schedule={"steps": 100000}, retry={"infrastructure": 0},
                    deadlines={phase: "5s" for phase in phases})
        os.kill(self.pids_of()[2], signal.SIGSTOP)
        self.assertIn("worker 2 is stopped by a signal", self.wait_for_state("failed")["message"])
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))

    def test_worker_with_a_wrong_token_is_refused_and_the_job_is_not_disturbed(self):
        self.submit(schedule={"steps": 400})
        self.wait_for_step(2)
        token = self.folder / "wrong-token"
        token.write_text("0" * 64)
        token.chmod(0o600)
        intruder = subprocess.run(
            [BIN / "tessera-worker"], capture_output=True, text=True, timeout=120,
            env={**self.environment, "TESSERA_SCHEDULER": f"file:{self.state}/endpoint.json",
                 "TESSERA_JOB": self.job()["uid"], "TESSERA_EPOCH": "1", "TESSERA_RANK": "0",
                 "TESSERA_TOKEN_FILE": str(token)})
        self.assertNotEqual(intruder.returncode, 0)
        self.assertIn("token", intruder.stdout + intruder.stderr)
        self.assertEqual(int(self.wait_for_state("succeeded")["epoch"]), 1)

    def test_worker_of_an_epoch_that_is_over_ends(self):
        self.submit(schedule={"steps": 100000}, checkpoint={"interval": 50})
        self.wait_for_step(2)
        first = self.pids_of()
        token = next(self.run_directory().glob("*token*"))
        old = self.folder / "old-token"
        old.write_text(token.read_text())
        os.kill(first[1], signal.SIGKILL)
        self.wait("the second epoch", lambda: int(self.status()["epoch"]) == 2 and self.state_of() == "running")
        late = subprocess.run(
            [BIN / "tessera-worker"], capture_output=True, text=True, timeout=120,
            env={**self.environment, "TESSERA_SCHEDULER": f"file:{self.state}/endpoint.json",
                 "TESSERA_JOB": self.job()["uid"], "TESSERA_EPOCH": "1", "TESSERA_RANK": "1",
                 "TESSERA_TOKEN_FILE": str(old)})
        self.assertNotEqual(late.returncode, 0)
        self.assertEqual(self.state_of(), "running")
        self.assertEqual(int(self.status()["epoch"]), 2)


if __name__ == "__main__":
    main()
