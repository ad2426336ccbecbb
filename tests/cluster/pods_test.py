"""The chart with workers in pods of their own: jobs are planned for the nodes that agents report, train over the pod
network, outlive one of their pods and leave none behind."""
import json
import os
import pathlib
import subprocess
import tempfile
import urllib.request

from kube import BUSY, CHART, ROOT, Forward, Service, free_port, kubectl, patience, query, run, small_job, wait_for
from service_test import NAME, NAMESPACE, VOLUME, ServiceTest, helm

BIN = pathlib.Path(os.environ["TESSERA_BIN"])

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


def running(job):
    return [pod for pod in workers(job) if pod["status"]["phase"] == "Running"]


def install(*settings):
    """The chart with workers in pods and TrainingJobs that go with it, when its agents have reported."""
    helm("install", NAME, CHART, "--wait", patience(180), "--set", "workers.mode=pods", "--set", "storage.accessMode=ReadWriteMany",
         "--set", "workers.image.repository=localhost/tessera-worker", "--set", "agent.image.repository=localhost/tessera-agent",
         "--set", "auth.tokenReview.enabled=true", "--set", "workers.serveMetrics=true", "--set", "workers.memory=4Gi", "--set", "trainingJobs.keep=false", *settings)
    service = Service(NAMESPACE, NAME)
    wait_for("reports of all nodes", 60, lambda: {node["name"] for node in service.get("/v1/nodes").get("nodes", [])} == set(node_names()))
    return service


def node_names():
    return kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()


def node(*arguments):
    """What deploy/cluster/node.sh does to a node."""
    run(ROOT / "deploy/cluster/node.sh", *arguments)


def planned(service, job):
    """The plan that a job would get."""
    status, body = service.call("POST", "/v1/namespaces/default/trainingJobs?validateOnly=true", job)
    assert status == 200, (status, body)
    return body["plan"]


class Prometheus:
    """One of this machine that finds tesserad and its workers as docs/kubernetes/README.md says, under the name pods use."""

    def __init__(self, service):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        (folder / "token").write_text(service.token)
        (folder / "ca.pem").write_text(service.ca)
        access = f"authorization: {{type: Bearer, credentials_file: {folder}/token}}, tls_config: {{ca_file: {folder}/ca.pem, server_name: {NAME}.{NAMESPACE}.svc}}"
        (folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
- {{job_name: tessera, scheme: https, honor_labels: true, {access}, static_configs: [{{targets: ["{service.address}"]}}]}}
- job_name: workers
  honor_labels: true
  http_sd_configs: [{{url: "https://{service.address}/v1/prometheusTargets", refresh_interval: 1s, {access}}}]
""")

    def __enter__(self):
        self.port = free_port()
        environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.process = subprocess.Popen(["prometheus", f"--config.file={self.folder.name}/prometheus.yml", f"--storage.tsdb.path={self.folder.name}/tsdb",
                                         f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"], env=environment)
        return lambda expression: query(self.port, expression)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


class PodsTest:
    def __init__(self):
        self.service, self.base = None, ServiceTest()

    def prepare(self):
        self.base.prepare()

    def finish(self):
        self.base.finish()

    def installs_with_workers_in_pods(self):
        self.service = install("--set", "workers.memory=500Mi")  # for one job of two workers

    def may_do_no_more_than_start_workers(self):
        def may(account, verb, kind):
            account = f"system:serviceaccount:{NAMESPACE}:{account}"
            return kubectl("auth", "can-i", verb, kind, "-n", NAMESPACE, "--as", account, check=False).stdout.strip() == "yes"
        assert may(NAME, "create", "jobs.batch") and may(NAME, "delete", "pods")
        for verb, kind in (("get", "pods"), ("get", "secrets"), ("get", "nodes"), ("list", "trainingjobs"), ("create", "trainingjobs")):
            assert not may(f"{NAME}-agent", verb, kind), f"an agent may {verb} {kind}"
        for verb, kind in (("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("create", "pods/exec"), ("get", "nodes"),
                           ("create", "rolebindings"), ("update", "deployments")):
            assert not may(NAME, verb, kind), f"{NAME} may {verb} {kind}"
        for verb, kind in (("get", "pods"), ("get", "secrets"), ("create", "jobs.batch")):
            assert not may(f"{NAME}-worker", verb, kind), f"a worker may {verb} {kind}"

    def _serves_its_series(self, job, rank):
        def targets():
            return [target["targets"][0] for target in self.service.get("/v1/prometheusTargets")
                    if target["labels"]["tessera_job"] == job and target["labels"]["tessera_rank"] == str(rank)]
        address, = wait_for("address of a worker's series", 60, targets)

        def served():
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{address}/metrics", timeout=10) as reply:
                return "tessera_worker_step{" in reply.read().decode()
        wait_for("a worker's series", 60, served)

    def takes_tokens_of_kubernetes_as_far_as_their_owner_may(self):
        for words in (["create", "serviceaccount", "viewer"], ["create", "role", "viewer", "--verb=get,list,watch", "--resource=trainingjobs.tessera.dev"],
                      ["create", "rolebinding", "viewer", "--role=viewer", f"--serviceaccount={NAMESPACE}:viewer"]):
            kubectl("-n", NAMESPACE, *words)
        viewer = f"system:serviceaccount:{NAMESPACE}:viewer"
        wait_for("the rights given", 20, lambda: "yes" in kubectl(
            "auth", "can-i", "list", "trainingjobs.tessera.dev", "-n", NAMESPACE, "--as", viewer, check=False).stdout)

        def call(account, method, path, body=None, audience="tessera"):
            token = kubectl("-n", NAMESPACE, "create", "token", account, "--audience", audience).strip()
            return self.service.call(method, path, body, token=token)
        jobs = "/v1/namespaces/default/trainingJobs"
        assert call("viewer", "GET", jobs)[0] == 200
        assert call("viewer", "GET", "/metrics")[0] == 200
        status, body = call("viewer", "POST", jobs, pod_job("forbidden"))
        assert status == 403 and "viewer may not create trainingjobs.tessera.dev" in body["detail"], (status, body)
        assert call("viewer", "GET", jobs, audience="another")[0] == 401
        for account in ("default", f"{NAME}-agent", f"{NAME}-worker"):
            assert call(account, "GET", jobs)[0] == 403, account
        report = {"node": {"name": "made-up"}}
        assert call("viewer", "POST", "/v1/nodes:report", report)[0] == 403
        kubectl("-n", NAMESPACE, "delete", "serviceaccounts/viewer", "roles/viewer", "rolebindings/viewer")

    def knows_what_its_nodes_allot_to_pods(self):
        nodes = {node["name"]: node for node in self.service.get("/v1/nodes")["nodes"]}
        for name in node_names():
            allotted = kubectl("get", "node", name, "-o", "jsonpath={.status.allocatable.memory}")
            total = int(nodes[name]["devices"][0]["totalBytes"])
            assert allotted.endswith("Ki") and 0 < total <= int(allotted[:-2]) * 1024, (name, allotted, total)
            assert 0 < int(nodes[name]["devices"][0]["freeBytes"]) <= total

    def trains_over_the_pod_network_on_the_nodes_of_its_plan(self):
        self.service.submit(pod_job("spread", steps=100000))
        pods = wait_for("two running workers", 90, lambda: len(pods := running("spread")) == 2 and pods)
        assert len({pod["status"]["podIP"] for pod in pods}) == 2
        self._serves_its_series("spread", 1)
        plan = self.service.get("/v1/namespaces/default/trainingJobs/spread/plans/1")
        wanted = {str(worker.get("rank", 0)): worker["node"] for worker in plan["workers"]}
        got = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["spec"]["nodeName"] for pod in pods}
        assert got == wanted and set(got.values()) == set(node_names()), (got, wanted)
        wait_for("step 50", 180, lambda: self.service.step("spread") >= 50)
        self.service.cancel("spread")

    def trains_what_the_command_line_submits_by_grpc(self):
        with tempfile.TemporaryDirectory() as folder, Forward(NAMESPACE, NAME, 8443) as port:
            folder = pathlib.Path(folder)
            (folder / "ca.pem").write_text(self.service.ca)
            (folder / "token").write_text(self.service.token)
            (folder / "token").chmod(0o600)
            (folder / "job.yaml").write_text(json.dumps(pod_job("typed")))

            def tessera(*words):
                return run(BIN / "tessera", "--address", f"https://localhost:{port}", "--ca", folder / "ca.pem", "--token-file", folder / "token", *words)
            tessera("submit", folder / "job.yaml")
            tessera("watch", "typed")
            assert json.loads(tessera("get", "typed", "-o", "json"))["status"]["state"].lower() == "succeeded"

    def knows_its_workers_by_the_tokens_of_their_pods(self):
        self.service.submit(pod_job("known", steps=100000, subnetwork={"coverage": 1.0}, dropping={"mode": "enforce", "density": 0.4, "warmupFraction": 0}))
        wait_for("step 5", 180, lambda: self.service.step("known") >= 5)
        job = self.service.job("known")
        assert not list((VOLUME / "jobs" / job["uid"]).glob("worker-token*")), "a secret lies in the volume"
        pod = next(pod for pod in workers("known") if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0")
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", pod["metadata"]["name"], "--bound-object-uid", pod["metadata"]["uid"]]

        def refusal(rank, *words, audience="tessera"):
            """What a worker is told that says it is `rank` of this job and shows a token made so."""
            with tempfile.TemporaryDirectory() as folder, Forward(NAMESPACE, NAME, 8443) as port:
                folder = pathlib.Path(folder)
                (folder / "ca.pem").write_text(self.service.ca)
                (folder / "token").write_text(kubectl("-n", NAMESPACE, "create", "token", f"{NAME}-worker", "--audience", audience, *words))
                done = subprocess.run([BIN / "tessera-worker"], capture_output=True, text=True, timeout=120 * BUSY, check=False, env={
                    "TESSERA_SCHEDULER": f"https://localhost:{port}", "TESSERA_CA_FILE": str(folder / "ca.pem"), "TESSERA_TOKEN_FILE": str(folder / "token"),
                    "TESSERA_JOB": job["uid"], "TESSERA_EPOCH": "1", "TESSERA_RANK": str(rank)})
                assert done.returncode != 0
                return done.stdout + done.stderr
        assert "does not run rank 1" in (said := refusal(1, *bound)), said
        assert "is bound to no pod" in (said := refusal(0)), said
        assert "for audience 'tessera'" in (said := refusal(0, *bound, audience="another")), said

    def takes_new_budgets_while_it_trains(self):
        def in_force():
            events = self.service.get("/v1/namespaces/default/trainingJobs/known/events").get("events", [])
            return any("plan 2 is in force on all workers" in event.get("message", "") for event in events)
        status, body = self.service.call("POST", "/v1/namespaces/default/trainingJobs/known:recomputeBudgets",
                                         {"layerLimits": [{"pattern": "*layers.0.mlp.up*", "min": 0.9, "max": 1}]})
        assert status == 200, (status, body)
        wait_for("plan 2 on all workers", 120, in_force)
        assert self.service.job("known")["status"]["epoch"] == 1, "the workers were started again"

    def is_scraped_as_the_documentation_says(self):
        with Prometheus(self.service) as scraped:
            wait_for("series of tesserad and both workers", 60, lambda: scraped('up{job="tessera"} == 1')
                     and len(scraped('tessera_worker_step{tessera_job="known"} > 0')) == 2)

    def lets_a_second_job_wait_and_start_when_there_is_room(self):
        self.service.submit(pod_job("second"))
        waits = wait_for("a queued job", 60, lambda: (job := self.service.job("second")["status"])["state"] == "queued" and job.get("message") and job)
        assert "known" in json.dumps(self.service.call("POST", "/v1/namespaces/default/trainingJobs/second:explain", {})[1]), waits
        assert not workers("second")
        self.service.cancel("known")
        assert self.service.finished("second")["status"]["state"] == "succeeded"

    def passes_its_own_helm_test(self):
        run("helm", "test", NAME, "-n", NAMESPACE, patience(300))

    def goes_on_after_a_worker_pod_was_killed(self):
        self.service.submit(pod_job("wounded", steps=100000, checkpoint={"interval": 20}, evaluation={"tokens": 128}))
        wait_for("a checkpoint", 180, lambda: self.service.checkpoint("wounded"))
        victim = running("wounded")[0]["metadata"]["name"]
        kubectl("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
        self.service.goes_on_from_a_checkpoint("wounded")

    def ends_the_pods_of_a_cancelled_job(self):
        wait_for("both workers", 30, lambda: len(running("wounded")) == 2)
        self.service.cancel("wounded")
        wait_for("end of its workers", 90, lambda: not workers("wounded"))

    def plans_by_a_link_that_became_slow(self):
        if len(node_names()) < 2:
            return

        def bandwidth():
            links = self.service.get("/v1/links").get("links", [])
            return min((link["bandwidthBytesPerSecond"] for link in links if link.get("bandwidthBytesPerSecond") and not link.get("stale")), default=0)
        wait_for("a measured link", 90, bandwidth)
        node("rate", "2", "80mbit")
        try:
            status, body = self.service.call("POST", "/v1/nodes:profile", {})
            assert status == 200, (status, body)
            wait_for("a measurement of the slow link", 90, lambda: 0 < bandwidth() < 20e6)
            links = planned(self.service, pod_job("slow"))["links"]
            assert any(link["bandwidthBytesPerSecond"] < 20e6 for link in links), links
        finally:
            node("rate", "2", "off")

    def says_what_a_worker_waits_for_whose_image_does_not_exist(self):
        helm("upgrade", NAME, CHART, "--reuse-values", "--set", "workers.image.tag=absent", "--wait", patience(180))
        wait_for("its nodes", 60, lambda: len(self.service.get("/v1/nodes").get("nodes", [])) == len(node_names()))
        self.service.submit(pod_job("imageless"))
        wait_for("the reason", 60, lambda: any("Pull" in worker.get("lastError", "") for worker in self.service.job("imageless")["status"].get("workers", [])))
        self.service.cancel("imageless")

    def leaves_nothing_when_uninstalled(self):
        self.base.leaves_nothing_when_uninstalled()


TESTS = PodsTest
