"""Two nodes in network namespaces: their agents find each other through the scheduler and measure the link between them."""

import json
import os
import subprocess

from local_service import BIN, ServiceTestCase, main

NAME = f"tessera{os.getpid()}"
PAYLOAD = 1448 / 1514 / 8  # bytes of a full frame that are ours, from bits


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Links(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.here, self.there = f"{NAME}a", f"{NAME}b"
        try:
            for namespace in (self.here, self.there):
                ip("netns", "add", namespace)
                self.addCleanup(subprocess.run, ["ip", "netns", "delete", namespace], check=False)
                ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", self.here, "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", self.there)
            for number, (namespace, megabits) in enumerate([(self.here, 80), (self.there, 200)], start=1):
                ip("-n", namespace, "address", "add", f"10.231.8.{number}/24", "dev", "link0")
                ip("-n", namespace, "link", "set", "link0", "up")
                subprocess.run(["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", "link0", "root", "tbf", "rate",
                                f"{megabits}mbit", "burst", "32kb", "latency", "50ms"], check=True, stderr=subprocess.PIPE)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"rate-limited network namespaces can't be made here: {getattr(error, 'stderr', error)}")

    def start(self, namespace, *command):
        process = subprocess.Popen(["ip", "netns", "exec", namespace, *map(str, command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def ask(self, *arguments):
        done = subprocess.run(["ip", "netns", "exec", self.here, str(BIN / "tessera"), *arguments, "-o", "json"], check=True,
                              stdout=subprocess.PIPE, text=True, env=self.environment)
        return json.loads(done.stdout)

    def test_links_are_measured_within_ten_percent_kept_and_shown(self):
        tls = self.folder / "tls"
        self.tessera("certs", "--out", str(tls), "--host", "10.231.8.1")
        daemon = self.start(self.here, BIN / "tesserad", "--state-dir", self.state, "--tls-host", "10.231.8.1", "--tls-cert",
                            tls / "server.pem", "--tls-key", tls / "server.key", "--link-host", "10.231.8.1")
        daemon.stdout.readline()
        address = dict(word.split("=", 1) for word in daemon.stdout.readline().split()[1:])["grpc"]
        own = self.ask("nodes")["nodes"][0]["name"]
        agent = self.start(self.there, BIN / "tessera-agent", "run", "--host", "10.231.8.2", "--node", "there", "--address",
                           address, "--token-file", self.state / "token", "--ca", tls / "ca.pem")
        self.assertTrue(agent.stdout.readline().startswith("10.231.8.2:"))
        self.wait("both nodes", lambda: {node["name"] for node in self.ask("nodes")["nodes"]} == {own, "there"})

        def measured():
            links = self.ask("links").get("links", [])
            return links and links[0].get("roundTripSeconds") and links[0]

        self.wait("a measured link", measured)
        # On a machine that does other things meanwhile a burst may be cut short; one in five is not.
        for _ in range(5):
            link = measured()
            self.assertEqual({link["node"], link["peer"]}, {own, "there"})
            out, back = link["bandwidthBytesPerSecond"], link["receiveBandwidthBytesPerSecond"]
            if link["node"] == "there":
                out, back = back, out
            ratios = (out / (80e6 * PAYLOAD), back / (200e6 * PAYLOAD))
            if all(abs(ratio - 1) <= 0.1 for ratio in ratios):
                break
            before = link["profileTime"]
            self.ask("links", "--measure")
            self.wait("a new measurement", lambda: measured()["profileTime"] != before)
        else:
            self.fail(f"measured over set rates, from here and from there: {ratios}")
        self.assertGreater(link["leastRoundTripSeconds"], 0)
        self.assertLessEqual(link["leastRoundTripSeconds"], link["roundTripSeconds"])
        self.assertGreater(link["confidence"], 0)
        self.assertFalse(link.get("stale", False))


if __name__ == "__main__":
    main()
