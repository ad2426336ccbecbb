"""The chart installed on the cluster: jobs train in it, survive what happens to it, and leave nothing behind."""
import json
import os
import pathlib
import shutil
import subprocess

from kube import CHART, Service, kubectl, nodes_take_pods, patience, run, small_job, wait_for

NAMESPACE = "tessera-test"
NAME = "tessera"
VOLUME = pathlib.Path(os.environ.get("CLUSTER_RUN", "/tmp")) / "tessera-volume"


def helm(*arguments, helm_program="helm"):
    tag = os.environ["TESSERA_TAG"]
    return run(helm_program, *arguments, "-n", NAMESPACE, "--set", "image.repository=localhost/tessera-tesserad", "--set", f"image.tag={tag}",
               "--set", "image.pullPolicy=IfNotPresent", "--set", "storage.storageClass=manual", "--set", "storage.size=1Gi",
               "--set", "storage.keep=false", "--set", "resources.requests.cpu=100m", "--set", "resources.limits.memory=2Gi")


def pod():
    pods = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=tesserad", "-o", "json"))["items"]
    return next((p for p in pods if not p["metadata"].get("deletionTimestamp")), None)


def ready():
    now = pod()
    return now and any(c["type"] == "Ready" and c["status"] == "True" for c in now["status"].get("conditions", [])) and now


class ServiceTest:
    def __init__(self):
        self.service = None

    def prepare(self):
        self.finish()  # what a run left that was cut off
        kubectl("apply", "-f", "-", text=f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: tessera-test}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  storageClassName: manual
  hostPath: {{path: {VOLUME}}}
""")
        VOLUME.mkdir(parents=True, exist_ok=True)
        shutil.chown(VOLUME, 65532, 65532)
        kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, patience(30))
        wait_for("nodes that take pods", 60, nodes_take_pods)

    def finish(self):
        run("helm", "uninstall", NAME, "-n", NAMESPACE, "--ignore-not-found", check=False)
        kubectl("delete", "crd", "trainingjobs.tessera.dev", "--ignore-not-found", patience(60), check=False)
        kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", patience(180), check=False)
        kubectl("delete", "pv", "tessera-test", "--ignore-not-found", patience(30), check=False)
        shutil.rmtree(VOLUME, ignore_errors=True)

    def installs_in_a_restricted_namespace(self):
        helm("install", NAME, CHART, "--wait", patience(180))
        self.service = Service(NAMESPACE, NAME)
        assert self.service.get("/readyz") == "ok\n"

    def runs_without_root_shell_or_writable_files(self):
        container = pod()["spec"]["containers"][0]["securityContext"]
        assert container["readOnlyRootFilesystem"] and not container["allowPrivilegeEscalation"]
        for shell in ("/bin/sh", "/bin/bash"):
            done = kubectl("-n", NAMESPACE, "exec", f"deploy/{NAME}", "--", shell, "-c", "true", check=False)
            assert done.returncode != 0, f"the image has {shell}"

    def gives_its_pod_no_credentials_of_the_cluster(self):
        account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
        for verb, kind in (("get", "secrets"), ("list", "pods"), ("create", "pods"), ("create", "jobs.batch"), ("get", "configmaps")):
            done = kubectl("auth", "can-i", verb, kind, "-n", NAMESPACE, "--as", account, check=False)
            assert done.stdout.strip() == "no", f"{account} may {verb} {kind}"
        mounts = pod()["spec"]["containers"][0]["volumeMounts"]
        assert not any("serviceaccount" in mount["mountPath"] for mount in mounts), mounts

    def refuses_a_wrong_token(self):
        status, _ = self.service.call("GET", "/v1/namespaces/default/trainingJobs", token="x" * 48)
        assert status == 401, status

    def trains_a_job_submitted_by_rest(self):
        self.service.submit(small_job("first"))
        job = self.service.finished("first")
        assert job["status"]["state"] == "succeeded", job["status"]
        assert int(job["status"]["step"]) == 20 and len(job["status"]["workers"]) == 2, job["status"]

    def refuses_a_job_that_does_not_fit_and_says_what_would(self):
        job = small_job("giant")
        job["spec"]["model"] = {"preset": "llama-1b"}
        job["spec"]["subnetwork"]["coverage"] = 1.0
        status, body = self.service.call("POST", "/v1/namespaces/default/trainingJobs", job)
        assert status == 429 and "worker 0 needs" in body["detail"], (status, body)

    def serves_metrics_of_jobs(self):
        metrics = self.service.get("/metrics")
        assert 'tessera_jobs{state="succeeded"}' in metrics and "tessera_build_info" in metrics

    def passes_its_own_helm_test(self):
        run("helm", "test", NAME, "-n", NAMESPACE, patience(300))

    def goes_on_from_a_checkpoint_after_its_pod_was_killed(self):
        self.service.submit(small_job("killed", steps=100000, checkpoint={"interval": 20}, evaluation={"tokens": 128}))
        wait_for("a checkpoint", 120, lambda: self.service.checkpoint("killed"))
        before = pod()["metadata"]["name"]
        kubectl("-n", NAMESPACE, "delete", "pod", before, "--grace-period=0", "--force")
        wait_for("new pod", 120, lambda: (ready() or {"metadata": {"name": before}})["metadata"]["name"] != before)
        self.service.goes_on_from_a_checkpoint("killed")
        self.service.cancel("killed")

    def keeps_jobs_token_and_certificate_over_an_upgrade(self):
        before = pod()["metadata"]["name"]
        helm("upgrade", NAME, CHART, "--set", "rateLimit=150", "--wait", patience(180))
        assert pod()["metadata"]["name"] != before
        again = Service(NAMESPACE, NAME)
        assert (again.token, again.ca) == (self.service.token, self.service.ca)
        assert again.job("first")["status"]["state"] == "succeeded"

    def reports_an_image_that_does_not_exist_and_rolls_back(self):
        done = subprocess.run(["helm", "upgrade", NAME, str(CHART), "-n", NAMESPACE, "--reuse-values", "--set", "image.tag=absent",
                               "--wait", "--timeout", "5s"], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        waiting = wait_for("failed pull", 60, lambda: next(
            (s["state"]["waiting"]["reason"] for s in (pod() or {"status": {}})["status"].get("initContainerStatuses", [])
             if "waiting" in s["state"] and "Pull" in s["state"]["waiting"]["reason"]), None))
        assert waiting in ("ErrImagePull", "ImagePullBackOff"), waiting
        run("helm", "rollback", NAME, "-n", NAMESPACE, "--wait", patience(180))
        assert self.service.job("first")["status"]["state"] == "succeeded"

    def leaves_nothing_when_uninstalled(self):
        run("helm", "uninstall", NAME, "-n", NAMESPACE, "--wait", patience(120))
        kinds = "pods,services,deployments,secrets,configmaps,serviceaccounts,networkpolicies,persistentvolumeclaims,jobs,leases"

        def left():
            names = kubectl("-n", NAMESPACE, "get", kinds, "-o", "name").split()
            return [name for name in names if name not in ("configmap/kube-root-ca.crt", "serviceaccount/default")]
        wait_for("empty namespace", 90, lambda: not left())


TESTS = ServiceTest
