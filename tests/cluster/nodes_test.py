"""Nodes that go: one is drained, one loses its power. Their jobs go on elsewhere, and nothing of them stays."""
from concurrent.futures import ThreadPoolExecutor

import pods_test
from kube import ROOT, kubectl, nodes_take_pods, patience, run, wait_for
from pods_test import pod_job, running, workers
from service_test import ServiceTest

LEAVES = "node2"  # tesserad runs on the other one
# What nodes that come back allot to pods: the second has more than half of the first, so each gets a worker, and less
# than one with the whole model needs.
SMALL_MEBIBYTES = {"node1": 2300, LEAVES: 1300}


def machine_mebibytes():
    return int(open("/proc/meminfo", encoding="ascii").readline().split()[1]) // 1024


def start(sizes):
    """Powers nodes on beside each other, each with so much memory in mebibytes, or all that the machine has."""
    def one(name, size):
        reserved = f"--system-reserved=memory={machine_mebibytes() - size}Mi" if size else ""
        run("env", f"CLUSTER_KUBELET_ARGS={reserved}", ROOT / "deploy/cluster/node.sh", "start", name[4:])
    with ThreadPoolExecutor(len(sizes)) as pool:
        list(pool.map(one, sizes.keys(), sizes.values()))


def nodes_of(pods):
    return {pod["spec"]["nodeName"] for pod in pods}


class NodesTest:
    def __init__(self):
        self.service, self.base, self.small = None, ServiceTest(), False

    def prepare(self):
        assert len(pods_test.node_names()) >= 2, "needs two nodes: CLUSTER_NODES=2"
        self.base.prepare()
        self.service = pods_test.install("--set", r"nodeSelector.kubernetes\.io/hostname=node1")

    def finish(self):
        pods_test.node("start", LEAVES[4:])  # pods of a node that is off never end
        kubectl("uncordon", LEAVES, check=False)
        self.base.finish()
        if self.small:  # with their own memory again
            for name in SMALL_MEBIBYTES:
                pods_test.node("stop", name[4:])
            start(dict.fromkeys(SMALL_MEBIBYTES))

    def _on_both_nodes(self, name, **spec):
        """A job that trains on both and has a checkpoint."""
        self.service.submit(pod_job(name, steps=100000, checkpoint={"interval": 20}, evaluation={"tokens": 128}, **spec))
        wait_for("a checkpoint", 180, lambda: self.service.checkpoint(name))
        assert nodes_of(running(name)) == {"node1", LEAVES}

    def _goes_on_on_the_other_node(self, name):
        self.service.goes_on_from_a_checkpoint(name)
        workers_now = self.service.job(name)["status"]["workers"]
        assert {worker["node"] for worker in workers_now} == {"node1"}, workers_now
        self.service.cancel(name)

    def moves_a_job_off_a_node_that_is_drained(self):
        self._on_both_nodes("drained")
        kubectl("drain", LEAVES, "--ignore-daemonsets", "--delete-emptydir-data", "--force", patience(120))
        self._goes_on_on_the_other_node("drained")
        kubectl("uncordon", LEAVES)
        wait_for("nodes that take pods", 60, nodes_take_pods)

    def goes_on_when_a_node_loses_its_power(self):  # with as many workers as the other has room for
        self._on_both_nodes("dark", deadlines={"step": "30s"}, workers={"count": 2, "min": 1, "batch": 2})
        pods_test.node("unplug", LEAVES[4:])
        pods_test.node("stop", LEAVES[4:])
        self._goes_on_on_the_other_node("dark")
        wait_for("end of all workers", 120, lambda: not workers("dark"))

    def _small_ones_report(self):
        nodes = {n["name"]: n for n in self.service.get("/v1/nodes").get("nodes", [])}
        return all(name in nodes and not nodes[name].get("stale") and int(nodes[name]["devices"][0]["totalBytes"]) <= size << 20
                   for name, size in SMALL_MEBIBYTES.items())

    def takes_nodes_back_and_gives_each_the_part_that_fits(self):
        pods_test.node("stop", "1")
        self.small = True
        start(SMALL_MEBIBYTES)
        wait_for("reports of both nodes", 150, self._small_ones_report)
        large = pod_job("large", model={"preset": "llama-134m"}, subnetwork={"granularity": "block", "coverageAuto": True, "minHolders": 1})

        def given():  # what is free on a node that just started grows for a while
            status, body = self.service.call("POST", "/v1/namespaces/default/trainingJobs?validateOnly=true", large)
            return status == 200 and body["plan"]
        plan = wait_for("a plan for what is free", 60, given)
        by_node = {worker["node"]: worker for worker in plan["workers"]}
        assert set(by_node) == {"node1", LEAVES}, by_node
        assert by_node[LEAVES]["coverage"] < by_node["node1"]["coverage"], by_node
        for worker in plan["workers"]:
            assert int(worker["memory"]["peak"]) <= int(worker["memoryLimitBytes"]), worker
        assert int(by_node[LEAVES]["memoryLimitBytes"]) < SMALL_MEBIBYTES[LEAVES] << 20
        self.service.submit(pod_job("back"))
        job = self.service.finished("back")
        assert job["status"]["state"] == "succeeded", job["status"]
        assert {worker["node"] for worker in job["status"]["workers"]} == {"node1", LEAVES}, job["status"]["workers"]


TESTS = NodesTest
