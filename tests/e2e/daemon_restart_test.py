"""The scheduler may go away at any time: workers train on and are found again."""

import os
import signal
import sqlite3

from local_service import PATIENCE, ServiceTestCase, main


class DaemonRestart(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()

    def assert_adopted_and_succeeds(self, pids, before):
        self.assertEqual(self.pids_of(), pids)
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["epoch"]), 1)
        self.assertEqual(int(status.get("restarts", 0)), 0)
        self.assertEqual([int(worker["pid"]) for worker in status["workers"]], pids)
        starts = [event for event in self.events() if event["reason"] == "WorkersStarted"]
        self.assertEqual(len(starts), 1)
        self.assertGreater(int(status["step"]), before)

    def test_killed_mid_run_training_never_stops_and_the_job_succeeds(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(workers={"count": 4}, schedule={"steps": 600}))
        self.wait_for_step(5)
        run, pids = self.run_directory(), self.pids_of()
        self.kill_daemon()
        before = self.logged_step(run)
        self.wait("steps without a daemon", lambda: self.logged_step(run) >= before + 20)
        self.start_daemon()
        self.assert_adopted_and_succeeds(pids, before)

    def test_stopped_in_order_workers_go_on_and_the_next_one_adopts_them(self):
        file = self.job_file(schedule={"steps": 600})
        self.tessera("train", file, "--detach")
        self.wait_for_step(5)
        run, pids = self.run_directory(), self.pids_of()
        self.assertIn("workers that run go on", self.tessera("daemon", "stop").text)
        self.assertFalse(self.processes("tesserad"))
        before = self.logged_step(run)
        self.wait("steps without a daemon", lambda: self.logged_step(run) >= before + 10)
        # Training again starts a daemon, which adopts the workers, and watches them to the end.
        again = self.tessera("train", file, "--no-sample", timeout=300)
        self.assertIn("runs already; watching it", again.text)
        self.assert_adopted_and_succeeds(pids, before)

    def test_a_job_that_ends_without_a_daemon_is_reported_when_there_is_one(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 150}))
        self.wait_for_step(2)
        run = self.run_directory()
        self.kill_daemon()
        self.wait("the last step", lambda: self.logged_step(run) == 150)
        self.start_daemon()
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["step"]), 150)
        self.assertEqual(int(status["epoch"]), 1)

    def test_the_command_line_starts_a_new_daemon_when_its_own_is_killed(self):
        training = self.start_tessera("train", self.job_file(schedule={"steps": 400}), "--no-sample")
        self.wait("the daemon", lambda: (self.state / "endpoint.json").exists())
        self.wait_for_step(5)
        first = self.endpoint()["pid"]
        os.kill(first, signal.SIGKILL)
        self.assertEqual(training.wait(timeout=300), 0, training.read())
        self.assertIn("reconnecting", training.read())
        self.assertNotEqual(self.endpoint()["pid"], first)
        self.assertEqual(int(self.status()["epoch"]), 1)

    def test_idle_daemon_ends_by_itself_but_not_while_a_job_runs(self):
        daemon = self.start_daemon("--idle-exit", "5s")  # longer than a command takes to start
        self.tessera("submit", self.job_file(schedule={"steps": 600}))
        run = self.wait("the run", lambda: next((self.state / "jobs").iterdir(), None))
        # Nobody calls; only files are looked at.
        self.wait("the last step", lambda: self.logged_step(run) == 600 or daemon.poll() is not None)
        self.assertEqual(self.logged_step(run), 600, "the daemon left before its job")
        self.assertEqual(daemon.wait(timeout=PATIENCE), 0)
        self.assertFalse(self.processes())

    def test_killed_while_the_workers_meet_the_job_still_succeeds(self):
        self.start_daemon()
        # What the workers had told each other through the daemon is lost with it: they meet again, at the
        # latest as a new group after this deadline.
        self.tessera("submit", self.job_file(deadlines={"rendezvous": "15s"}, retry={"backoff": "0.1s"}))
        self.wait("workers", lambda: self.processes("tessera-worker"))
        self.kill_daemon()
        self.start_daemon()
        status = self.wait_for_state("succeeded")
        self.assertLessEqual(int(status["epoch"]), 2, status)

    def test_worker_that_ends_while_there_is_no_daemon_is_noticed_by_the_next(self):
        self.start_daemon()
        self.tessera("submit", self.job_file(
            schedule={"steps": 300}, checkpoint={"interval": 20}, retry={"backoff": "0.1s"}))
        self.wait("a checkpoint", lambda: self.status().get("checkpoint"))
        pids = self.pids_of()
        self.kill_daemon()
        os.kill(pids[1], signal.SIGKILL)
        self.wait("its end", lambda: pids[1] not in self.processes())
        self.start_daemon()
        status = self.wait_for_state("succeeded")
        self.assertEqual(int(status["restarts"]), 1)
        (warning,) = [event for event in self.events() if event["type"] == "Warning"]
        self.assertIn("worker 1 ", warning["message"])

    def test_workers_started_but_not_yet_recorded_are_not_left_behind(self):
        """As after a crash between the start of the workers and the write that tells of them."""
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 100000}))
        self.wait_for_step(2)
        pids, run = self.pids_of(), self.run_directory()
        self.kill_daemon()
        (record,) = (run / "logs").glob("epoch-1-processes.json")
        record.unlink()
        database = sqlite3.connect(self.state / "jobs.db")
        with database:
            database.execute("UPDATE jobs SET processes = x''")
        database.close()
        self.start_daemon()
        self.tessera("cancel", "tiny")
        self.wait_for_state("cancelled")
        self.wait("the orphans to end", lambda: not self.processes("tessera-worker"))
        self.assertTrue(pids)


if __name__ == "__main__":
    main()
