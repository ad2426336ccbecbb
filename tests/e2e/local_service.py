"""The real programs in a folder of their own: daemon, command line, workers and REST."""

import ctypes
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

BIN = pathlib.Path(os.environ["TESSERA_BIN"])
PATIENCE = 120.0  # seconds for anything to happen; a slow machine needs them, a fast one does not
POLL = 0.03


def bind_life_to_parent():
    """A daemon that a test starts ends with it, whatever ends the test."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def english(sentences, seed=1):
    draw = random.Random(seed).choice
    who = ["the cat", "a dog", "the old man", "my friend", "a small bird"]
    does = ["sees", "likes", "follows", "hears"]
    what = ["the sea", "a tree", "the moon", "a song", "the road"]
    return "\n".join(f"{draw(who)} {draw(does)} {draw(what)}." for _ in range(sentences)) + "\n"


def spec(**changes):
    """A job of seconds. Keys of `changes` are fields of the spec; their messages are merged; None takes a field out."""
    base = {
        "model": {"preset": "llama-1m"},
        "data": {"train": "data/train-*.bin", "validation": "data/validation-*.bin", "sequence_length": 32},
        "workers": {"count": 2, "batch": 1},
        "subnetwork": {"coverage": 0.5, "min_holders": 1, "seed": 3},
        "schedule": {"steps": 40},
        "evaluation": {"tokens": 1024},
    }
    for key, value in changes.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
        if isinstance(value, dict):
            base[key] = {name: field for name, field in base[key].items() if field is not None}
    return base


class Reply:
    def __init__(self, status, body):
        self.status = status
        self.text = body

    @property
    def json(self):
        return json.loads(self.text)


class Terminal:
    """A program on a pseudo-terminal that this process can close."""

    def __init__(self, arguments, env, cwd):
        self.output = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execve(arguments[0], arguments, env)
            finally:
                os._exit(127)
        os.set_blocking(self.fd, False)

    def read(self):
        try:
            while chunk := os.read(self.fd, 65536):
                self.output += chunk
        except (BlockingIOError, OSError):
            pass
        return self.output.decode(errors="replace")

    def type(self, keys):
        os.write(self.fd, keys)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def poll(self):
        """The exit code (negative: signal), None while it runs."""
        if self.fd >= 0:
            self.read()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)


class ServiceTestCase(unittest.TestCase):
    """A state directory and data per test; every process started in it is gone afterwards."""

    maxDiff = None

    def setUp(self):
        # Short: paths of sockets and lock files end up in messages.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-e2e-"))
        self.state = self.folder / "state"
        self.daemon = None
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "OMP_NUM_THREADS": "1",
            "TESSERA_STATE_DIR": str(self.state),
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        self.addCleanup(self.remove_everything)

    def remove_everything(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            self.print_logs()
        deadline = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if self.daemon is not None:
                self.daemon.poll()
            time.sleep(POLL)
        if self.daemon is not None:
            self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def print_logs(self):
        for log in sorted(self.state.glob("**/*.log")):
            lines = log.read_text(errors="replace").splitlines()
            print(f"--- {log.relative_to(self.state)} ({len(lines)} lines)")
            print("\n".join(lines[-25:]))

    # Programs

    def prepare_data(self, sentences=3000):
        text = self.folder / "text.txt"
        text.write_text(english(sentences))
        self.tessera("data", "prepare", "--input", str(text), "--tokenizer", "byte", "--out", str(self.folder / "data"))

    def job_file(self, name="tiny", **changes):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"name": name, "spec": spec(**changes)}))
        return str(path)

    def tessera(self, *arguments, expect=0, timeout=PATIENCE, env=None):
        """Runs the command line to its end; its output is that of both streams in `.text`."""
        done = subprocess.run([BIN / "tessera", *arguments], cwd=self.folder, env=env or self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        done.text = done.stdout + done.stderr
        if expect is not None:
            self.assertEqual(done.returncode, expect, f"tessera {' '.join(map(str, arguments))}:\n{done.text}")
        return done

    def start_tessera(self, *arguments):
        output = (self.folder / "tessera.out").open("w+")
        self.addCleanup(output.close)
        process = subprocess.Popen([BIN / "tessera", *arguments], cwd=self.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        process.read = lambda: (self.folder / "tessera.out").read_text()
        return process

    def start_in_terminal(self, *arguments):
        terminal = Terminal([str(BIN / "tessera"), *arguments], self.environment, self.folder)
        self.addCleanup(terminal.close)
        return terminal

    def start_daemon(self, *arguments):
        """A daemon of this process, to be killed and waited for. Its REST and gRPC answer on return."""
        self.state.mkdir(exist_ok=True, mode=0o700)
        log = (self.state / "tesserad.log").open("a")
        self.daemon = subprocess.Popen([BIN / "tesserad", *arguments], cwd=self.folder, env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                                       preexec_fn=bind_life_to_parent)
        log.close()
        self.addCleanup(self.daemon.stdout.close)
        line = self.daemon.stdout.readline()
        self.assertRegex(line, r"^tesserad \S+ pid=\d+ grpc=", (self.state / "tesserad.log").read_text())
        return self.daemon

    def run_daemon(self, *arguments, timeout=PATIENCE):
        """One that is expected to end by itself."""
        return subprocess.run([BIN / "tesserad", *arguments], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def processes(self, name=""):
        """Processes that live in this test's state directory, by pid, except this one."""
        found = []
        mark = f"TESSERA_STATE_DIR={self.state}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if alive and mark in (entry / "environ").read_bytes().split(b"\0"):
                    if name in (entry / "comm").read_text():
                        found.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return found

    # Observation

    def wait(self, what, look, timeout=PATIENCE, progress=None):
        """The first true answer of `look`; fails with `what` and the last answer. The time starts again whenever the
        answer of `progress` is another one: what gets on, however slowly, is not given up."""
        deadline = time.monotonic() + timeout
        before = None
        while True:
            answer = look()
            if answer:
                return answer
            if progress is not None and (now := progress()) != before:
                before, deadline = now, time.monotonic() + timeout
            if time.monotonic() > deadline:
                self.fail(f"waited {timeout:.0f} s for {what}; last: {answer!r}\n{self.tessera('list', expect=None).text}")
            time.sleep(POLL)

    def endpoint(self):
        return json.loads((self.state / "endpoint.json").read_text())

    def token(self):
        return (self.state / "token").read_text().strip()

    def rest(self, method, path, body=None, token=None, headers=()):
        request = urllib.request.Request(self.endpoint()["rest"] + path, method=method,
                                         data=None if body is None else json.dumps(body).encode())
        if token != "":
            request.add_header("Authorization", f"Bearer {token or self.token()}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        for key, value in headers:
            request.add_header(key, value)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as reply:
                return Reply(reply.status, reply.read().decode())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read().decode())

    def job(self, name="tiny"):
        reply = self.rest("GET", f"/v1/namespaces/default/trainingJobs/{name}")
        self.assertIn(reply.status, (200, 404), reply.text)
        return reply.json if reply.status == 200 else None

    def status(self, name="tiny"):
        job = self.job(name)
        return job["status"] if job else {}

    def state_of(self, name="tiny"):
        return self.status(name).get("state", "").lower()

    def step_of(self, name="tiny"):
        return int(self.status(name).get("step", 0))

    def pids_of(self, name="tiny"):
        """By rank, once all are known."""
        def look():
            pids = [int(worker.get("pid", 0)) for worker in self.status(name).get("workers", [])]
            return pids if pids and all(pids) else None  # kill(0) would be for this test itself

        return self.wait(f"the workers of {name} to have process ids", look)

    def wait_for_state(self, *states, name="tiny", timeout=PATIENCE):
        ends = {"succeeded", "failed", "cancelled"}

        def look():
            status = self.status(name)
            state = status.get("state", "").lower()
            if state in ends and state not in states:
                self.fail(f"{name} is {state}, not {'/'.join(states)}: {status.get('message')}")
            return status if state in states else None

        return self.wait(f"{name} to be {'/'.join(states)}", look, timeout)

    def wait_for_step(self, step, name="tiny"):
        def look():
            status = self.status(name)
            if status.get("state", "").lower() in ("failed", "cancelled"):
                self.fail(f"{name} ended before step {step}: {status}")
            return int(status.get("step", 0)) >= step

        self.wait(f"{name} to reach step {step}", look, progress=lambda: self.step_of(name))

    def events(self, name="tiny"):
        reply = self.rest("GET", f"/v1/namespaces/default/trainingJobs/{name}/events?pageSize=1000")
        return reply.json.get("events", [])

    def metrics_lines(self, run_directory):
        path = pathlib.Path(run_directory) / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def logged_step(self, run_directory):
        return max((line["step"] for line in self.metrics_lines(run_directory)), default=0)

    def run_directory(self, name="tiny"):
        return pathlib.Path(self.status(name)["runDirectory"])

    def weights(self, name="tiny"):
        return (pathlib.Path(self.status(name)["exportedModel"]) / "model.safetensors").read_bytes()

    def assert_same_weights(self, one, other):
        self.assertEqual(len(one), len(other))
        self.assertTrue(one == other, "the models differ")


def main():
    unittest.main(verbosity=2)
