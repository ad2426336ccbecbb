"""Cancel and delete at every stage: no process and no file is left that should not be."""

import os
import signal

from local_service import ServiceTestCase, main

FOREVER = {"steps": 1000000}


class Lifecycle(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()

    def assert_no_workers(self):
        self.wait("all workers to be gone", lambda: not self.processes("tessera-worker"))

    def test_cancel_while_queued_and_the_waiting_job_says_why_it_waits(self):
        self.start_daemon("--memory-limit", "500MiB")  # one job of two workers
        self.tessera("submit", self.job_file("first", schedule=FOREVER))
        self.tessera("submit", self.job_file("second", schedule=FOREVER))
        self.wait_for_step(1, "first")
        waiting = self.wait_for_state("queued", name="second")
        self.assertIn("MB", waiting["message"])
        self.assertIn("first", self.tessera("list").stdout)
        self.tessera("cancel", "second")
        self.assertIn("before any worker was started", self.wait_for_state("cancelled", name="second")["message"])
        self.assertEqual(self.state_of("first"), "running")
        self.tessera("submit", self.job_file("third"))
        self.tessera("cancel", "first")
        self.wait_for_state("succeeded", name="third")  # the capacity was given back
        self.assert_no_workers()

    def test_cancel_while_starting_ends_also_a_worker_that_does_not_listen(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule=FOREVER))
        pids = self.wait("workers", lambda: self.processes("tessera-worker"))
        os.kill(pids[0], signal.SIGSTOP)
        self.tessera("cancel", "tiny")
        self.wait_for_state("cancelled")
        self.assert_no_workers()

    def test_cancel_while_running_writes_a_checkpoint_and_ends_all_workers(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule=FOREVER))
        self.wait_for_step(2)
        self.tessera("cancel", "tiny")
        status = self.wait_for_state("cancelled")
        self.assert_no_workers()
        self.assertTrue(os.path.isdir(status["checkpoint"]))
        self.assertIn("CANCELLED", self.tessera("get", "tiny").stdout)
        refused = self.tessera("suspend", "tiny", expect=1)
        self.assertIn("has ended as CANCELLED", refused.text)
        self.assertEqual(self.tessera("watch", "tiny", expect=3).returncode, 3)

    def test_delete_of_a_finished_job_removes_its_files_but_not_the_users_checkpoints(self):
        self.start_daemon()
        kept = self.folder / "kept"
        self.tessera("train", self.job_file(checkpoint={"uri": str(kept)}), "--no-sample")
        run = self.run_directory()
        self.assertTrue(run.is_dir())
        self.tessera("delete", "tiny")
        self.assertIsNone(self.job())
        self.wait("the files to be gone", lambda: not run.exists())
        self.assertTrue(list(kept.glob("tiny-*/step-00000040/manifest.json")))
        self.tessera("get", "tiny", expect=1)

    def test_delete_of_a_running_job_ends_its_workers_and_removes_its_files(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule=FOREVER))
        self.wait_for_step(2)
        run = self.run_directory()
        self.tessera("delete", "tiny")
        self.assertIsNone(self.job(), "deleted means deleted when the command returns")
        self.assert_no_workers()
        self.wait("the files to be gone", lambda: not run.exists())
        self.assertEqual(os.listdir(self.state / "jobs"), [])

    def test_delete_asked_for_before_a_crash_is_finished_by_the_next_daemon(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule=FOREVER))
        self.wait_for_step(2)
        run, pids = self.run_directory(), self.pids_of()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that it cannot be over too soon
        self.assertEqual(self.rest("DELETE", "/v1/namespaces/default/trainingJobs/tiny").status, 200)
        self.kill_daemon()
        self.assertTrue(run.is_dir())
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.start_daemon()
        self.wait("the job to be gone", lambda: self.job() is None)
        self.assert_no_workers()
        self.wait("the files to be gone", lambda: not run.exists())

    def test_finished_job_goes_after_its_time(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 5}, ttlAfterFinished="1s"))
        run = self.wait("the run", lambda: self.job() and self.run_directory())
        self.wait("the job to be gone", lambda: self.job() is None)
        self.wait("the files to be gone", lambda: not run.exists())

    def test_resize_goes_on_from_a_checkpoint_with_other_workers_and_resize_of_what_does_not_fit_changes_nothing(self):
        self.start_daemon("--memory-limit", "700MiB")
        self.tessera("submit", self.job_file(schedule=FOREVER))
        self.wait_for_step(5)
        refused = self.tessera("resize", "tiny", "8", expect=1)
        self.assertIn("does not fit", refused.text)
        self.assertEqual(self.state_of(), "running")
        self.tessera("resize", "tiny", "3")
        before = self.wait("three workers to train", lambda: len(self.status()["workers"]) == 3 and self.status())["step"]
        self.wait_for_step(before + 3)
        status = self.wait_for_state("running")
        self.assertEqual((status["epoch"], status["planGeneration"], len(status["workers"])), (2, 2, 3))
        log = (self.run_directory() / "logs/epoch-2-rank-0.log").read_text()
        self.assertRegex(log, r"event=joined .*resume_from=\S*/step-")
        self.assertIn("resized from 2 to 3 workers", self.rest("GET", "/v1/namespaces/default/trainingJobs/tiny/plans/2").text)
        self.tessera("cancel", "tiny")
        self.wait_for_state("cancelled")
        self.assert_no_workers()

    def test_retry_of_a_cancelled_job_is_another_job_that_begins_at_its_checkpoint(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 3000}))
        self.wait_for_step(5)
        self.tessera("retry", "tiny", expect=1)  # it runs
        self.tessera("cancel", "tiny")
        self.wait_for_state("cancelled")
        reached = self.step_of()
        self.assertIn(f"step {reached}", self.tessera("retry", "tiny", "--name", "again").stdout)
        self.assertIn(str(reached), self.tessera("checkpoints", "tiny").stdout)
        self.wait_for_step(reached + 1, name="again")
        first = min(line["step"] for line in self.metrics_lines(self.run_directory("again")))
        self.assertGreaterEqual(first, reached)
        self.assertEqual(self.state_of("tiny"), "cancelled")


if __name__ == "__main__":
    main()
