"""Two replicas of tesserad: one works, the other takes over when it is gone, and the workers notice nothing."""
import json

import pods_test
from kube import kubectl, nodes_take_pods, patience, wait_for
from service_test import NAME, NAMESPACE, ServiceTest

SELECTOR = f"app.kubernetes.io/component=tesserad,app.kubernetes.io/instance={NAME}"


def pods(labels=SELECTOR):
    found = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", labels, "-o", "json"))["items"]
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def leader():
    """The pod that clients are sent to, as soon as it is one and holds the Lease."""
    leading = pods(f"{SELECTOR},tessera.dev/leads={NAME}")
    holder = kubectl("-n", NAMESPACE, "get", "lease", NAME, "-o", "jsonpath={.spec.holderIdentity}")
    return leading[0] if len(leading) == 1 and leading[0]["metadata"]["name"] == holder else None


def ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


class ReplicasTest:
    def __init__(self):
        self.service, self.base = None, ServiceTest()

    def prepare(self):
        self.base.prepare()
        self.service = pods_test.install("--set", "replicas=2", "--set", "storage.records=kubernetes")

    def finish(self):
        self.base.finish()

    def _answers(self):
        return self.service.get("/readyz") == "ok\n" and self.service.get("/v1/nodes")

    def _apart(self):
        """Whether both could take over from the other. The chart's wish for two nodes is no must: one that stands by goes
        where a pod that just ended does not leave room for it."""
        found = pods()
        if len(found) != 2 or not all(ready(pod) for pod in found):
            return False
        if len({pod["spec"]["nodeName"] for pod in found}) == 1 and (leads := leader()):
            other, = (pod for pod in found if pod["metadata"]["name"] != leads["metadata"]["name"])
            kubectl("-n", NAMESPACE, "delete", "pod", other["metadata"]["name"])
            return False
        return len({pod["spec"]["nodeName"] for pod in found}) == 2

    def _goes_on_with_the_same_workers(self, name):
        before = wait_for("answers of the next leader", 120, lambda: self._answers() and self.service.step(name))
        wait_for("further steps", 120, lambda: self.service.step(name) > before)
        assert self.service.job(name)["status"]["epoch"] == 1, self.service.job(name)["status"]

    def runs_two_of_which_one_works(self):
        wait_for("a leader", 60, leader)
        assert len(pods()) == 2 and len({pod["spec"]["nodeName"] for pod in pods()}) == 2, "not on two nodes"
        wait_for("a budget for one", 30, lambda: kubectl("-n", NAMESPACE, "get", "pdb", NAME, "-o", "jsonpath={.status.disruptionsAllowed}") == "1")

    def keeps_its_records_in_objects(self):
        self.service.submit(pods_test.pod_job("kept"))
        assert self.service.finished("kept")["status"]["state"] == "succeeded"
        kinds = kubectl("-n", NAMESPACE, "get", "trainingrecords", "-o", "name")
        for name in ("j.default.kept", "e.default.kept", "p.default.kept"):
            assert name in kinds, kinds

    def goes_on_when_the_leader_is_deleted(self):
        self.service.submit(pods_test.pod_job("through", steps=100000, evaluation={"tokens": 128}))
        wait_for("step 5", 120, lambda: self.service.step("through") >= 5)
        gone = wait_for("a leader", 30, leader)["metadata"]["name"]
        kubectl("-n", NAMESPACE, "delete", "pod", gone, "--grace-period=0", "--force")
        wait_for("another leader", 60, lambda: (leader() or {"metadata": {"name": gone}})["metadata"]["name"] != gone)
        self._goes_on_with_the_same_workers("through")
        assert self.service.job("kept")["status"]["state"] == "succeeded"

    def takes_a_lease_that_its_leader_gave_back(self):
        before = wait_for("a leader", 60, leader)["metadata"]["name"]
        kubectl("-n", NAMESPACE, "delete", "pod", before, "--wait=false")
        wait_for("another leader", 60, lambda: (leader() or {"metadata": {"name": before}})["metadata"]["name"] != before)
        self._goes_on_with_the_same_workers("through")
        self.service.cancel("through")

    def takes_over_when_the_leaders_node_loses_its_power(self):
        wait_for("two pods that are ready, on two nodes", 60, self._apart)
        node = wait_for("a leader", 60, leader)["spec"]["nodeName"]
        address = self.service.address
        try:
            pods_test.node("stop", node[4:])
            now = wait_for("a leader on the other node", 90, lambda: (now := leader()) and now["spec"]["nodeName"] != node and now)
            self.service.address = f"{now['status']['podIP']}:7443"  # the Service is reached through the first node
            wait_for("its answers", 60, self._answers)
            assert self.service.job("kept")["status"]["state"] == "succeeded"
        finally:
            self.service.address = address
            pods_test.node("start", node[4:])

    def leaves_nothing_when_uninstalled(self):
        wait_for("nodes that take pods", 60, nodes_take_pods)
        kubectl("-n", NAMESPACE, "delete", "tj", "--all", patience(60))
        wait_for("end of the records of jobs", 60, lambda: "trainingrecord.tessera.dev/j." not in kubectl("-n", NAMESPACE, "get", "trainingrecords", "-o", "name"))
        self.base.leaves_nothing_when_uninstalled()


TESTS = ReplicasTest
