"""The service under load, on this machine: one real tesserad on a SQLite store, real clients on loopback.

    ./dev bench service [--jobs 10000] [--watchers 1000] [--busy 200] [--streams 1000] [--seconds 15] [--out docs/results/service.md]

CPU and memory are those of the process tesserad, read from /proc; what clients use is not in them. Workers of the stream
test are stand-ins that sleep: their streams come from this script and carry one progress report per second each. All of it
takes about five minutes.
"""
import argparse
import asyncio
import atexit
import datetime
import http.client
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/bin"))
TICKS = os.sysconf("SC_CLK_TCK")
JOBS = "/v1/namespaces/default/trainingJobs"
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


class Daemon:
    def __init__(self, folder, *arguments):
        self.state = folder / "state"
        self.environment = {**os.environ, "TESSERA_STATE_DIR": str(self.state), "OMP_NUM_THREADS": "1"}
        begin = time.monotonic()
        self.process = subprocess.Popen([BIN / "tesserad", "--rate-limit", "0", *arguments], env=self.environment, text=True,
                                        stdout=subprocess.PIPE, stderr=(folder / "tesserad.log").open("a"))
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        self.started = time.monotonic() - begin
        self.host, port = re.search(r"rest=http://([^:]+):(\d+)", line).groups()
        self.port = int(port)
        self.grpc = re.search(r"grpc=(\S+)", line).group(1)
        self.token = (self.state / "token").read_text().strip()
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.http = http.client.HTTPConnection(self.host, self.port, timeout=60)

    def ask(self, method, path, body=None):
        return json.loads(self.answer(method, path, body))

    def answer(self, method, path, body=None):
        headers = {**self.headers, **({"Content-Type": "application/json"} if body else {})}
        try:
            self.http.request(method, path, json.dumps(body) if body else None, headers)
            reply = self.http.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError):  # the daemon closes connections that idle
            self.http.close()
            self.http.request(method, path, json.dumps(body) if body else None, headers)
            reply = self.http.getresponse()
        text = reply.read()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {text[:400]}")
        return text

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text()).group(1)) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spec(data, workers=2, **more):
    return {"model": {"preset": "llama-1m"}, "data": {"train": f"{data}/train-*.bin", "sequenceLength": 32},
            "workers": {"count": workers, "batch": 1}, "schedule": {"steps": 100000}, **more}


def small_model(folder):
    """A LLaMA of 0.05 M parameters: a thousand workers of it fit this machine."""
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 4,
                                "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 260, "rms_norm_eps": 1e-5,
                                "max_position_embeddings": 256, "tie_word_embeddings": True}))
    return {"configPath": str(path), "vocabSize": 260}


def prepare(folder):
    text = folder / "text.txt"
    text.write_text("the cat sees the sea and a dog hears the road\n" * 4000)
    subprocess.run([BIN / "tessera", "data", "prepare", "--input", text, "--tokenizer", "byte", "--out", folder / "data"],
                   check=True, stdout=subprocess.DEVNULL)
    return folder / "data"


def submissions(daemon, data, jobs):
    daemon.ask("POST", JOBS, {"name": "warm", "spec": spec(data, suspend=True)})  # measures the model once
    times = []
    begin = time.monotonic()
    for i in range(jobs):
        one = time.monotonic()
        daemon.ask("POST", JOBS, {"name": f"job-{i:05d}", "spec": spec(data, suspend=True)})
        times.append(time.monotonic() - one)
    took = time.monotonic() - begin
    return [("submissions, one client", f"{jobs / took:,.0f} /s, p50 {1000 * percentile(times, .5):.1f} ms, p99 {1000 * percentile(times, .99):.1f} ms", "")]


def lists(daemon, jobs):
    rows = []
    token = ""
    for label, query in (("list, page of 100", "?pageSize=100"), ("list, page of 100, read mask of the console", "?pageSize=100&readMask=name,status.state,status.step")):
        times = []
        for _ in range(200):
            begin = time.monotonic()
            page = daemon.answer("GET", JOBS + query + (f"&pageToken={token}" if token else ""))
            times.append(1000 * (time.monotonic() - begin))  # to the last byte; what this script makes of it is not counted
            token = json.loads(page).get("nextPageToken", "")
        rows.append((f"{label}, {jobs:,} jobs", f"p50 {percentile(times, .5):.1f} ms, p99 {percentile(times, .99):.1f} ms", "p99 ≤ 10 ms"))
        token = ""
    return rows


async def watch(daemon, name, count):
    reader, writer = await asyncio.open_connection(daemon.host, daemon.port, limit=1 << 24)
    writer.write(f"GET {JOBS}/{name}:watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {daemon.token}\r\n\r\n".encode())
    try:
        while line := await reader.readline():
            if line.startswith(b"HTTP/1.1") and b"200" not in line:
                count["refused"] += 1
            if line.startswith(b"data:"):
                count["events"] += 1
    except (asyncio.CancelledError, ConnectionError):
        writer.close()


async def watchers(daemon, label, name, clients, seconds, goal=""):
    count = {"events": 0, "refused": 0}
    before = daemon.resident()
    tasks = []
    for _ in range(clients):
        tasks.append(asyncio.create_task(watch(daemon, name, count)))
        await asyncio.sleep(0.002)
    await asyncio.sleep(2)
    begin, cpu, events = time.monotonic(), daemon.cpu(), count["events"]
    await asyncio.sleep(seconds)
    took = time.monotonic() - begin
    used = (daemon.cpu() - cpu) / took
    row = (f"{clients:,} {label} SSE clients", f"{100 * used:.1f} % of a core, {daemon.resident() - before:+.0f} MiB, "
           f"{(count['events'] - events) / took:,.0f} events/s, {count['refused']} refused", goal)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return row


class Messages:
    def __init__(self, daemon):
        channel = grpc.insecure_channel(daemon.grpc, OPTIONS)
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.pool.FindServiceByName("tessera.v1.WorkerService")

    def __getattr__(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"tessera.v1.{name}"))


async def streams(daemon, data, workers, seconds, label, busy_clients):
    """One job of `workers` whose processes sleep, and one of 8 that is watched; this script speaks for them."""
    m = await asyncio.to_thread(Messages, daemon)
    model = small_model(data.parent)
    up, down = m.WorkerUp, m.WorkerDown

    async def start(name, count):
        await asyncio.to_thread(daemon.ask, "POST", JOBS, {"name": name, "spec": spec(data, count, model=model, deadlines={"drain": "1s"})})
        while (job := await asyncio.to_thread(daemon.ask, "GET", f"{JOBS}/{name}")).get("status", {}).get("startTime") is None:
            await asyncio.sleep(0.2)
        return job["uid"], (pathlib.Path(job["status"]["runDirectory"]) / "worker-token-epoch-1").read_text().strip()

    channels = [grpc.aio.insecure_channel(daemon.grpc, OPTIONS) for _ in range(8)]
    stop = asyncio.Event()
    failed = []
    reports = [0]

    async def speak(uid, token, rank):
        call = channels[rank % len(channels)].stream_stream(
            "/tessera.v1.WorkerService/Connect", request_serializer=lambda x: x.SerializeToString(),
            response_deserializer=down.FromString)(metadata=[("authorization", f"Bearer {token}")])
        reading = asyncio.create_task(drain(call))  # as workers do: what is not read fills the service's buffers
        try:
            await call.write(up(hello={"identity": {"job_uid": uid, "epoch": 1, "rank": rank, "pid": 1}}))
            await call.write(up(phase={"phase": 3}))
            step = 0
            while not stop.is_set():
                step += 1
                await call.write(up(progress={"step": step, "loss": 3.0, "tokens": step * 100, "step_seconds": 1.0,
                                              "compute_seconds": 0.5, "memory_used_bytes": 1 << 20, "memory_peak_bytes": 1 << 20}))
                reports[0] += 1
                await asyncio.sleep(1)
        finally:
            reading.cancel()
            call.cancel()

    async def drain(call):
        async for _ in call:
            pass

    async def worker(uid, token, rank, count):
        await asyncio.sleep(rank / count)
        while not stop.is_set():  # as workers do: too many greetings at once are told to come again
            try:
                return await speak(uid, token, rank)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                failed.append(str(error)[:200])
                await asyncio.sleep(1)

    tasks = [asyncio.create_task(worker(*wide, rank, workers)) for wide in [await start("wide", workers)] for rank in range(workers)]
    await asyncio.sleep(5)
    begin, cpu, before = time.monotonic(), daemon.cpu(), reports[0]
    await asyncio.sleep(seconds)
    took = time.monotonic() - begin
    used, rate = (daemon.cpu() - cpu) / took, (reports[0] - before) / took
    resident = daemon.resident()
    stop.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(daemon.ask, "POST", JOBS + "/wide:cancel")
    while (await asyncio.to_thread(daemon.ask, "GET", JOBS + "/wide"))["status"]["state"] != "cancelled":
        await asyncio.sleep(0.5)
    stop.clear()
    rows = [(label, f"{100 * used:.1f} % of a core at {rate:,.0f} reports/s, {resident:.0f} MiB, {len(failed)} connected again",
             "≤ 5 % of a core")]
    tasks = []
    if busy_clients > 0:
        tasks = [asyncio.create_task(worker(*small, rank, 8)) for small in [await start("busy", 8)] for rank in range(8)]
        await asyncio.sleep(2)
        rows.append(await watchers(daemon, "busy", "busy", busy_clients, seconds))
        await asyncio.to_thread(daemon.ask, "POST", JOBS + "/busy:cancel")
    stop.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        await channel.close()
    return rows


def first_step(daemon, data, repeat):
    times = []
    for i in range(repeat):
        begin = time.monotonic()
        daemon.ask("POST", JOBS, {"name": f"first-{i}", "spec": spec(data)})
        while daemon.ask("GET", f"{JOBS}/first-{i}?readMask=status.step").get("status", {}).get("step", 0) < 1:
            time.sleep(0.01)
        times.append(time.monotonic() - begin)
        daemon.ask("POST", f"{JOBS}/first-{i}:cancel")
        while daemon.ask("GET", f"{JOBS}/first-{i}?readMask=status.state")["status"]["state"] != "cancelled":
            time.sleep(0.05)
    return [("submit → first step, llama-1m, 2 workers", f"median {statistics.median(times):.2f} s, of {repeat}", "≤ 2 s")]


def stand_in(folder):
    path = folder / "worker"
    # Described as what it is, a process that takes next to nothing: a thousand of them are admitted.
    bare = ("import json, sys; shape = json.load(sys.stdin); "
            "shape['process'] = dict(baseBytes=1 << 20, slackRatio=0.01, communicatorBytes=1); json.dump(shape, sys.stdout)")
    path.write_text(f'#!/bin/sh\nif [ "$1" = describe ]; then {BIN}/tessera-worker "$@" | {sys.executable} -c "{bare}"; exit; fi\n'
                    'exec sleep 900\n')
    path.chmod(0o755)
    return str(path)


def main():
    rows = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        folder = pathlib.Path(name)
        data = prepare(folder)
        daemon = Daemon(folder)
        rows += first_step(daemon, data, ARGUMENTS.repeat)
        rows += submissions(daemon, data, ARGUMENTS.jobs)
        rows += lists(daemon, ARGUMENTS.jobs)
        rows.append(asyncio.run(watchers(daemon, "idle", "job-00000", ARGUMENTS.watchers, ARGUMENTS.seconds)))
        daemon.stop()
        daemon = Daemon(folder, "--worker-program", stand_in(folder), "--memory-limit", "4Ti")  # the stand-ins need none
        rows.append((f"start until both doors answer, {ARGUMENTS.jobs:,} jobs", f"{daemon.started:.2f} s, {daemon.resident():.0f} MiB", ""))
        label = f"{ARGUMENTS.streams:,} worker streams at 1 Hz"
        rows += asyncio.run(streams(daemon, data, ARGUMENTS.streams, ARGUMENTS.seconds, f"{label} beside {ARGUMENTS.jobs:,} jobs", ARGUMENTS.busy))
        daemon.stop()
        (folder / "alone").mkdir()
        daemon = Daemon(folder / "alone", "--worker-program", stand_in(folder), "--memory-limit", "4Ti")
        rows += asyncio.run(streams(daemon, data, ARGUMENTS.streams, ARGUMENTS.seconds, f"{label}, no other jobs", 0))
        daemon.stop()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    lines = ["# The service under load", "",
             f"`./dev bench service {' '.join(sys.argv[1:])}`, {datetime.date.today()}, {model}, {os.cpu_count()} cores, Linux {platform.release()}."
             f" Load average {os.getloadavg()[2]:.0f}; {(time.monotonic() - began) / 60:.0f} minutes. {ARGUMENTS.note}".rstrip(), "", "| measured | result | goal |", "|---|---|---|"]
    lines += [f"| {what} | {result} | {goal} |" for what, result, goal in filter(None, rows)]
    text = "\n".join(lines) + "\n"
    print(text)
    if ARGUMENTS.out:
        out = pathlib.Path(ARGUMENTS.out)
        kept = out.read_text().split("\n\n## ", 1) if out.exists() else [""]
        out.write_text(text + ("\n## " + kept[1] if len(kept) > 1 else ""))


parser = argparse.ArgumentParser()
parser.add_argument("--jobs", type=int, default=10000)
parser.add_argument("--watchers", type=int, default=1000)
parser.add_argument("--busy", type=int, default=200)
parser.add_argument("--streams", type=int, default=1000)
parser.add_argument("--seconds", type=float, default=15)
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--note", default="")
parser.add_argument("--out", default="")
ARGUMENTS = parser.parse_args()
if __name__ == "__main__":
    main()
