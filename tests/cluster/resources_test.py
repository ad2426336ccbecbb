"""Jobs as custom resources: what people do with kubectl behaves as they expect."""
import json

import pods_test
from kube import kubectl, patience, wait_for
from pods_test import workers
from service_test import NAME, NAMESPACE, VOLUME, ServiceTest


def manifest(name, steps=20, **changes):
    spec = pods_test.pod_job(name, steps)["spec"] | changes
    return json.dumps({"apiVersion": "tessera.dev/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec})


def apply(text, check=True):
    return kubectl("-n", NAMESPACE, "apply", "-f", "-", text=text, check=check)


def resource(name):
    return json.loads(kubectl("-n", NAMESPACE, "get", "tj", name, "-o", "json"))


def names():
    return [line.split("/")[1] for line in kubectl("-n", NAMESPACE, "get", "tj", "-o", "name").split()]


def condition(name, kind):
    return next((c for c in resource(name).get("status", {}).get("conditions", []) if c["type"] == kind), None)


def wait(name, kind, seconds=240):
    kubectl("-n", NAMESPACE, "wait", f"--for=condition={kind}", f"tj/{name}", patience(seconds))


class ResourcesTest:
    def __init__(self):
        self.service, self.base = None, ServiceTest()

    def prepare(self):
        self.base.prepare()
        self.service = pods_test.install()

    def finish(self):
        self.base.finish()

    def trains_what_is_applied_and_wait_sees_it(self):
        apply(manifest("applied"))
        wait("applied", "Succeeded")
        status = resource("applied")["status"]
        assert status["state"] == "succeeded" and status["step"] == 20 and status["observedGeneration"] == 1, status
        assert self.service.job("applied")["status"]["state"] == "succeeded"

    def shows_state_and_progress_in_columns(self):
        head, row = kubectl("-n", NAMESPACE, "get", "tj", "applied").splitlines()
        assert head.split() == ["NAME", "STATE", "WORKERS", "STEP", "STEPS", "LOSS", "VALIDATION", "AGE"], head
        assert row.split()[:5] == ["applied", "succeeded", "2", "20", "20"], row

    def describes_conditions_and_events(self):
        wait_for("events", 20, lambda: all(word in kubectl("-n", NAMESPACE, "describe", "tj", "applied") for word in ("Submitted", "WorkersStarted", "Succeeded")))

    def explains_its_fields(self):
        assert "share of maskable parameters" in kubectl("explain", "tj.spec.subnetwork.coverage")

    def refuses_unknown_fields_and_wrong_types_at_once(self):
        done = apply(manifest("typo", workres={"count": 2}), check=False)
        assert done.returncode != 0 and "workres" in done.stderr, done.stderr
        done = apply(manifest("typo", precision="fp8"), check=False)
        assert done.returncode != 0 and "spec.precision" in done.stderr, done.stderr
        done = apply(manifest("a.b"), check=False)
        assert done.returncode != 0 and "no dots" in done.stderr, done.stderr

    def says_in_a_condition_what_is_wrong_and_takes_the_corrected_job(self):
        apply(manifest("wrong", workers={"count": 2, "batch": 0}))
        refused = wait_for("refusal", 30, lambda: (c := condition("wrong", "Accepted")) and c["status"] == "False" and c)
        assert refused["reason"] == "Invalid" and "spec.workers.batch" in refused["message"], refused
        assert not workers("wrong")
        apply(manifest("wrong"))
        wait("wrong", "Accepted", 60)
        kubectl("-n", NAMESPACE, "delete", "tj", "wrong", patience(60))

    def keeps_what_cannot_be_changed_and_follows_what_can(self):
        apply(manifest("fixed", steps=100000))
        wait("fixed", "Running", 120)
        done = apply(manifest("fixed", steps=50), check=False)
        assert done.returncode != 0 and "spec.schedule can't be changed after submission" in done.stderr, done.stderr
        kubectl("-n", NAMESPACE, "patch", "tj", "fixed", "--type=merge", "-p", '{"spec":{"priority":7,"suspend":true}}')
        wait("fixed", "Suspended", 120)
        assert self.service.job("fixed")["spec"]["priority"] == 7
        assert condition("fixed", "Running")["status"] == "False"
        wait_for("end of the workers", 60, lambda: not workers("fixed"))

    def shows_in_the_object_what_another_door_changed(self):
        status, body = self.service.call("POST", "/v1/namespaces/default/trainingJobs/fixed:resume", {})
        assert status == 200, (status, body)
        wait("fixed", "Running", 120)
        wait_for("the changed object", 20, lambda: not resource("fixed")["spec"].get("suspend"))

    def deletes_a_running_job_and_leaves_nothing(self):
        uid = self.service.job("fixed")["uid"]
        owner = json.loads(kubectl("-n", NAMESPACE, "get", "jobs.batch", "-l", "tessera.dev/job=fixed", "-o", "json"))["items"][0]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("TrainingJob", resource("fixed")["metadata"]["uid"])
        kubectl("-n", NAMESPACE, "delete", "tj", "fixed", patience(60))
        wait_for("end of its workers", 120, lambda: not workers("fixed"))
        wait_for("end of the job", 60, lambda: self.service.call("GET", "/v1/namespaces/default/trainingJobs/fixed")[0] == 404)
        wait_for("end of its files", 30, lambda: not (VOLUME / "jobs" / uid).exists())
        wait_for("end of its objects", 60, lambda: not kubectl("-n", NAMESPACE, "get", "jobs.batch,networkpolicies", "-l", "tessera.dev/job=fixed", "-o", "name").strip())
        assert "fixed" not in names()

    def makes_an_object_of_a_job_that_came_by_rest_and_deletes_it_with_the_job(self):
        self.service.submit(pods_test.pod_job("rested"))
        wait_for("its object", 20, lambda: "rested" in names())

        def owners():  # also of workers that were started before the object was there
            jobs = json.loads(kubectl("-n", NAMESPACE, "get", "jobs.batch", "-l", "tessera.dev/job=rested", "-o", "json"))["items"]
            return [job["metadata"].get("ownerReferences", [{}])[0].get("uid") for job in jobs]
        wait_for("owner of its workers", 20, lambda: owners() == [resource("rested")["metadata"]["uid"]])
        wait("rested", "Succeeded")
        status, _ = self.service.call("DELETE", "/v1/namespaces/default/trainingJobs/rested")
        assert status == 200, status
        wait_for("end of its object", 60, lambda: "rested" not in names())

    def says_that_a_job_does_not_fit(self):
        apply(manifest("giant", model={"preset": "llama-1b"}, subnetwork={"coverage": 1.0}, resources={"cpuThreads": 1, "memoryLimitBytes": 2 << 30}))
        refused = wait_for("refusal", 60, lambda: (c := condition("giant", "Accepted")) and c["status"] == "False" and c)
        assert refused["reason"] == "DoesNotFit" and "worker 0 needs" in refused["message"], refused
        kubectl("-n", NAMESPACE, "delete", "tj", "giant")

    def goes_on_after_a_restart_of_tesserad_and_sees_what_was_deleted_meanwhile(self):
        apply(manifest("survivor", steps=100000))
        apply(manifest("leaver", steps=100000))
        wait("survivor", "Running", 180)
        kubectl("-n", NAMESPACE, "scale", "deploy", NAME, "--replicas=0")
        wait_for("end of tesserad", 90, lambda: not kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=tesserad", "-o", "name").strip())
        kubectl("-n", NAMESPACE, "delete", "tj", "leaver")
        kubectl("-n", NAMESPACE, "scale", "deploy", NAME, "--replicas=1")
        kubectl("-n", NAMESPACE, "rollout", "status", f"deploy/{NAME}", patience(120))
        before = resource("survivor")["status"].get("step", 0)
        wait_for("further steps of the same workers", 180, lambda: (s := resource("survivor")["status"]).get("step", 0) > before and s["epoch"] == 1)
        wait_for("end of the deleted job", 120, lambda: self.service.call("GET", "/v1/namespaces/default/trainingJobs/leaver")[0] == 404)
        assert "leaver" not in names()
        kubectl("-n", NAMESPACE, "delete", "tj", "survivor", patience(60))
        wait_for("end of its workers", 120, lambda: not workers("survivor"))

    def leaves_nothing_when_uninstalled(self):
        kubectl("-n", NAMESPACE, "delete", "tj", "--all", patience(60))
        self.base.leaves_nothing_when_uninstalled()


TESTS = ResourcesTest
