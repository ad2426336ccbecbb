"""Processor time and memory of an idle tessera-agent beside others of its cluster, all on this machine: counted by the
kernel, so what else runs here does not count. agent.py BINARIES [SECONDS]"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
FIRST_SECONDS = 30  # its first reports, and the first measurements of its links
AGENTS = (1, 2, 8)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(binaries, agents, seconds):
    """CPU seconds of the first minute's half and share of a core after it, and bytes, of the costliest agent."""
    with tempfile.TemporaryDirectory() as state:
        environment = dict(os.environ, TESSERA_STATE_DIR=state)
        daemon = subprocess.Popen([binaries / "tesserad"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes = []
        try:
            daemon.stdout.readline()
            for i in range(agents):
                processes.append(subprocess.Popen([binaries / "tessera-agent", "run", "--host", f"127.0.0.{i + 2}", "--node", f"node-{i}"],
                                                  env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(FIRST_SECONDS)
            before = [cpu_seconds(p.pid) for p in processes]
            time.sleep(seconds)
            after = [cpu_seconds(p.pid) for p in processes]
            nodes = subprocess.run([binaries / "tessera", "nodes"], env=environment, capture_output=True, text=True, check=True).stdout
            assert all(f"node-{i}" in nodes for i in range(agents)), nodes
            worst = max(range(agents), key=lambda i: after[i] - before[i])
            return before[worst], (after[worst] - before[worst]) / seconds, max(resident_bytes(p.pid) for p in processes)
        finally:
            for process in [*processes, daemon]:
                process.terminate()
                process.wait()


def main():
    binaries, seconds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 180
    print(f"| agents | first {FIRST_SECONDS} s, CPU s | then, share of a core | resident |\n|---|---|---|---|")
    for agents in AGENTS:
        first, share, resident = measure(binaries, agents, seconds)
        print(f"| {agents} | {first:.2f} | {share:.3%} | {resident / 2**20:.1f} MiB |", flush=True)


if __name__ == "__main__":
    main()
