"""The chart with workers in pods of their own: a job trains over the pod network, outlives one of its pods and leaves
none behind."""
import json

from kube import CHART, Service, kubectl, run, small_job, wait_for
from service_test import NAME, NAMESPACE, ServiceTest, helm

EXAMPLE = "/var/lib/tessera/example"  # in the volume, which workers see too
WORKERS = "app.kubernetes.io/managed-by=tesserad,app.kubernetes.io/component=worker"


def pod_job(name, steps=20, **spec):
    made = small_job(name, steps, **spec)
    made["spec"]["data"].update(train=f"{EXAMPLE}/train-*.bin", validation=f"{EXAMPLE}/validation-*.bin")
    return made


def workers(job=None):
    labels = WORKERS + (f",tessera.dev/job={job}" if job else "")
    pods = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", labels, "-o", "json"))["items"]
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def running():
    return [pod for pod in workers() if pod["status"]["phase"] == "Running"]


class PodsTest:
    def __init__(self):
        self.service, self.base = None, ServiceTest()

    def prepare(self):
        self.base.prepare()

    def finish(self):
        self.base.finish()

    def installs_with_workers_in_pods(self):
        helm("install", NAME, CHART, "--wait", "--timeout", "3m", "--set", "workers.mode=pods",
             "--set", "workers.image.repository=localhost/tessera-worker", "--set", "trainingJobs.keep=false")
        self.service = Service(NAMESPACE, NAME)

    def may_do_no_more_than_start_workers(self):
        def may(account, verb, kind):
            account = f"system:serviceaccount:{NAMESPACE}:{account}"
            return kubectl("auth", "can-i", verb, kind, "-n", NAMESPACE, "--as", account, check=False).stdout.strip() == "yes"
        assert may(NAME, "create", "jobs.batch") and may(NAME, "delete", "pods")
        for verb, kind in (("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("create", "pods/exec"), ("get", "nodes"),
                           ("create", "rolebindings"), ("update", "deployments")):
            assert not may(NAME, verb, kind), f"{NAME} may {verb} {kind}"
        for verb, kind in (("get", "pods"), ("get", "secrets"), ("create", "jobs.batch")):
            assert not may(f"{NAME}-worker", verb, kind), f"a worker may {verb} {kind}"

    def trains_over_the_pod_network(self):
        self.service.submit(pod_job("spread", steps=60))
        pods = wait_for("two running workers", 90, lambda: len(running()) == 2 and running())
        assert len({pod["status"]["podIP"] for pod in pods}) == 2
        job = self.service.finished("spread")
        assert job["status"]["state"] == "succeeded" and int(job["status"]["step"]) == 60, job["status"]

    def passes_its_own_helm_test(self):
        run("helm", "test", NAME, "-n", NAMESPACE, "--timeout", "5m")

    def goes_on_after_a_worker_pod_was_killed(self):
        self.service.submit(pod_job("wounded", steps=300, checkpoint={"interval": 20}, evaluation={"tokens": 128}))
        wait_for("step 40", 120, lambda: int(self.service.job("wounded")["status"].get("step", 0)) >= 40)
        victim = running()[0]["metadata"]["name"]
        kubectl("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
        job = self.service.finished("wounded")
        assert job["status"]["state"] == "succeeded" and int(job["status"]["step"]) == 300, job["status"]

    def ends_the_pods_of_a_cancelled_job(self):
        self.service.submit(pod_job("stopped", steps=100000))
        wait_for("step 5", 120, lambda: int(self.service.job("stopped")["status"].get("step", 0)) >= 5)
        status, body = self.service.call("POST", "/v1/namespaces/default/trainingJobs/stopped:cancel", {})
        assert status == 200, (status, body)
        assert self.service.finished("stopped")["status"]["state"] == "cancelled"
        wait_for("end of all workers", 90, lambda: not running())

    def leaves_nothing_when_uninstalled(self):
        self.base.leaves_nothing_when_uninstalled()


TESTS = PodsTest
