"""The daemon and its folder: one daemon each, clear words when it cannot work, nothing lost."""

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import unittest
import urllib.request

from local_service import BIN, PATIENCE, ServiceTestCase, main


class StateDirectory(ServiceTestCase):
    def test_no_daemon_each_command_says_so_and_starts_none(self):
        for command in (["list"], ["get", "x"], ["watch", "x"], ["logs", "x"], ["cancel", "x"], ["delete", "x"], ["nodes"]):
            refused = self.tessera(*command, expect=5)
            self.assertIn("no daemon runs", refused.text)
        self.tessera("daemon", "status", expect=5)
        self.tessera("daemon", "stop")
        self.assertFalse(self.processes())

    def test_start_twice_is_one_daemon_and_stop_ends_it(self):
        self.assertIn("was started", self.tessera("daemon", "start").text)
        pid = self.endpoint()["pid"]
        self.assertIn("runs already", self.tessera("daemon", "start").text)
        self.assertEqual(self.processes("tesserad"), [pid])
        self.assertIn("no jobs", self.tessera("list").text)
        self.tessera("daemon", "stop")
        self.assertFalse(self.processes())
        self.assertIn("no daemon runs", self.tessera("list", expect=5).text)

    def test_several_callers_at_once_start_one_daemon(self):
        callers = [subprocess.Popen([BIN / "tessera", "daemon", "start"], env=self.environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(4)]
        texts = [caller.communicate(timeout=PATIENCE)[0] for caller in callers]
        self.assertEqual([caller.returncode for caller in callers], [0] * 4, texts)
        self.assertEqual(sum("was started" in text for text in texts), 1, texts)
        self.assertEqual(len(self.processes("tesserad")), 1)

    def test_second_daemon_on_the_same_folder_is_refused_by_pid(self):
        daemon = self.start_daemon()
        second = self.run_daemon()
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"another tesserad uses {self.state}: process {daemon.pid}", second.stderr)
        self.tessera("list")

    def test_corrupt_store_is_named_and_left_as_it_is(self):
        self.prepare_data(300)
        self.start_daemon()
        self.tessera("train", self.job_file(schedule={"steps": 3}), "--no-sample")
        run = self.run_directory()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(timeout=PATIENCE), 0)
        store = self.state / "jobs.db"
        for extra in self.state.glob("jobs.db-*"):
            extra.unlink()
        healthy, broken = store.read_bytes(), b"this is no database" * 1000
        store.write_bytes(broken)
        refused = self.run_daemon()
        self.assertEqual(refused.returncode, 1)
        self.assertIn(str(store), refused.stderr)
        self.assertEqual(store.read_bytes(), broken)
        self.assertTrue(run.is_dir())
        shown = self.tessera("train", self.job_file(), expect=5)
        self.assertIn(str(store), shown.text)
        store.write_bytes(healthy)
        self.start_daemon()
        self.assertEqual(self.state_of(), "succeeded")

    def test_store_of_a_newer_version_is_refused(self):
        self.start_daemon()
        self.kill_daemon()
        database = sqlite3.connect(self.state / "jobs.db")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {version + 1000}")
        database.close()
        refused = self.run_daemon()
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, "newer|version")

    def test_folder_that_cannot_be_made_or_written(self):
        blocked = self.folder / "file"
        blocked.write_text("")
        refused = self.run_daemon("--state-dir", str(blocked / "state"))
        self.assertEqual(refused.returncode, 1)
        self.assertIn(str(blocked / "state"), refused.stderr)
        shown = self.tessera("list", "--state-dir", str(blocked / "state"), expect=5)
        self.assertIn(str(blocked / "state"), shown.text)
        shown = self.tessera("daemon", "start", "--state-dir", str(blocked / "state"), expect=5)
        self.assertIn("cannot create the state directory", shown.text)

    def worker_step(self):
        """From the worker itself: the daemon cannot store what it hears."""
        address = self.status()["workers"][0]["metricsAddress"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as reply:
            return float(re.search(r"^tessera_worker_step(?:{.*})? (\S+)$", reply.read().decode(), re.M)[1])

    def mount(self, *options):
        self.state.mkdir(exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", self.state],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=False)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount a tmpfs")
    def test_read_only_folder_is_named(self):
        self.mount("size=1m", "ro")
        refused = self.run_daemon()
        self.assertEqual(refused.returncode, 1)
        self.assertIn(str(self.state), refused.stderr)
        self.assertIn("Read-only", refused.stderr)
        self.assertIn("Read-only", self.tessera("daemon", "start", expect=5).text)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount a tmpfs")
    def test_full_disk_training_goes_on_and_what_was_written_stays(self):
        self.prepare_data(300)
        self.mount("size=200m")
        self.start_daemon()
        self.tessera("submit", self.job_file(schedule={"steps": 100000}, checkpoint={"interval": 50}))
        checkpoint = self.wait("a checkpoint", lambda: self.status().get("checkpoint"))
        filler = self.state / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()
            except OSError:
                pass
        before = self.worker_step()
        self.wait("training to go on", lambda: self.worker_step() >= before + 100)
        self.assertEqual(self.state_of(), "running")
        # What a failed checkpoint gave back may hold it: then it must be kept, else refused with the reason.
        second = self.tessera("submit", self.job_file("second"), expect=None)
        if second.returncode == 0:
            self.assertIn("second", self.tessera("list").text)
        else:
            self.assertRegex(second.text, "full|space")
        self.assertTrue(list(self.run_directory().glob("checkpoints/step-*/manifest.json")), checkpoint)
        filler.unlink()
        self.wait("a newer checkpoint", lambda: self.status()["checkpoint"] > checkpoint)
        self.tessera("cancel", "tiny")
        self.wait_for_state("cancelled")
        if second.returncode == 0:
            self.tessera("cancel", "second", expect=None)

    def test_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for option in ("--grpc-port", "--rest-port"):
                refused = self.run_daemon(option, port)
                self.assertEqual(refused.returncode, 1, refused.stderr)
                self.assertIn(port, refused.stderr)
                self.assertRegex(refused.stderr, "in use|already")

    def test_ports_stay_the_same_over_a_restart_unless_they_are_taken(self):
        self.start_daemon()
        first = self.endpoint()
        self.kill_daemon()
        self.start_daemon()
        again = self.endpoint()
        self.assertEqual((first["grpc"], first["rest"]), (again["grpc"], again["rest"]))
        self.kill_daemon()
        with socket.create_server(("127.0.0.1", int(first["grpc"].rpartition(":")[2]))):
            self.start_daemon()
            self.assertNotEqual(self.endpoint()["grpc"], first["grpc"])
            self.tessera("list")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip"), "needs root, unshare, ip")
    def test_host_without_ipv6(self):
        self.prepare_data(300)
        inside = ("ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && "
                  '"$@" && "$0" daemon stop')
        tried = subprocess.run(["unshare", "-n", "true"], capture_output=True)
        if tried.returncode != 0:
            self.skipTest("no network namespaces here")
        tessera = str(BIN / "tessera")
        done = subprocess.run(
            ["unshare", "-n", "bash", "-c", inside, tessera, tessera, "train", self.job_file(), "--no-sample"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SUCCEEDED", done.stdout)


if __name__ == "__main__":
    main()
