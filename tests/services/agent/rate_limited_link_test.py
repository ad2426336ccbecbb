"""A veth pair between two network namespaces, limited to a known rate, is measured within 10 %."""
import json
import os
import subprocess
import sys
import unittest

AGENT = sys.argv.pop() if len(sys.argv) > 1 else "build/release/bin/tessera-agent"
NAME = f"tessera{os.getpid()}"


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


def inside(namespace, *command):
    return ["ip", "netns", "exec", namespace, *command]


class RateLimitedLink(unittest.TestCase):
    def setUp(self):
        self.namespaces = [f"{NAME}{end}" for end in "ab"]
        try:
            for namespace in self.namespaces:
                ip("netns", "add", namespace)
                self.addCleanup(subprocess.run, ["ip", "netns", "delete", namespace], check=False)
            a, b = self.namespaces
            ip("-n", a, "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", b)
            for number, namespace in enumerate(self.namespaces, start=1):
                ip("-n", namespace, "address", "add", f"10.231.7.{number}/24", "dev", "link0")
                ip("-n", namespace, "link", "set", "link0", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"network namespaces can't be made here: {getattr(error, 'stderr', error)}")

    def limit(self, namespace, megabits):
        done = subprocess.run(inside(namespace, "tc", "qdisc", "add", "dev", "link0", "root", "tbf", "rate", f"{megabits}mbit",
                                     "burst", "32kb", "latency", "50ms"), check=False, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self.skipTest(f"the kernel has no token bucket filter: {done.stderr}")

    def test_both_directions_are_measured_within_ten_percent(self):
        a, b = self.namespaces
        self.limit(a, 80)   # what a sends
        self.limit(b, 200)  # what b sends
        server = subprocess.Popen(inside(b, AGENT, "serve", "--host", "10.231.7.2"), stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        address = server.stdout.readline().strip()
        self.addCleanup(server.stdout.close)
        payload = 1448 / 1514 / 8  # bytes of a full frame that are ours, from bits
        # On a machine that does other things meanwhile a burst may be cut short; one in twenty is not.
        for _ in range(20):
            line = subprocess.run(inside(a, AGENT, "links", address), check=True, stdout=subprocess.PIPE, text=True).stdout
            link = json.loads(line)
            print(line)
            self.assertGreater(link["roundTripSeconds"], 0)
            ratios = (link["sendBytesPerSecond"] / (80e6 * payload), link["receiveBytesPerSecond"] / (200e6 * payload))
            if all(abs(ratio - 1) <= 0.1 for ratio in ratios):
                return
        self.fail(f"measured over set rates, sending and receiving: {ratios}")


if __name__ == "__main__":
    unittest.main()
