"""The cluster under test, seen from this machine: kubectl, helm, and the service's REST door."""
import base64
import errno
import http.client
import json
import pathlib
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/tessera"
BUSY = 3  # a machine that does other things beside takes so many times as long: what still fails hangs


def run(*command, text=None, check=True):
    """Standard output of a command; its output is in the error if it fails."""
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, check=False, timeout=900)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout if check else done


def kubectl(*arguments, text=None, check=True):
    return run("kubectl", *arguments, text=text, check=check)


def patience(seconds):
    """`--timeout` of a command that takes up to `seconds` where nothing else runs."""
    return f"--timeout={seconds * BUSY}s"


def wait_for(what, seconds, condition):
    """Polls until `condition()` is true, and returns what it gave. `seconds` is ample where nothing else runs. Who is asked
    may be away for a moment: a failed call is an answer like any other that is not the one."""
    end = time.monotonic() + seconds * BUSY
    while True:
        why = ""
        try:
            found = condition()
        except (OSError, http.client.HTTPException, AssertionError) as error:
            found, why = None, f": {error}"
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"no {what} after {seconds * BUSY} s{why}")
        time.sleep(0.3)


def nodes_take_pods():
    """All are Ready, and none has a taint that a moment ago was right."""
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    ready = [any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])) for node in nodes]
    return nodes and all(ready) and not any(node["spec"].get("taints") for node in nodes)


def show_cluster(namespace="tessera-test"):
    """Prints what somebody would look at who has to find out why a case failed."""
    for words in (["get", "pods,jobs.batch,pvc", "-o", "wide"], ["get", "tj"], ["get", "events", "--sort-by=.lastTimestamp"],
                  ["logs", "-l", "app.kubernetes.io/component=tesserad", "--all-containers", "--tail=60"],
                  ["logs", "-l", "app.kubernetes.io/component=worker", "--prefix", "--tail=15"]):
        done = kubectl("-n", namespace, *words, check=False)
        lines = (done.stdout + done.stderr).splitlines()[-60:]
        print(f"----- kubectl {' '.join(words)}", *lines, sep="\n", flush=True)


class Service:
    """REST with the token and the authority that the chart made, through the Service's address."""

    def __init__(self, namespace, name):
        self.namespace, self.name = namespace, name
        self.token = self.secret("token", "token")
        self.ca = self.secret("tls", "ca.crt")
        self.address = json.loads(kubectl("-n", namespace, "get", "service", name, "-o", "json"))["spec"]["clusterIP"]

    def secret(self, suffix, key):
        data = json.loads(kubectl("-n", self.namespace, "get", "secret", f"{self.name}-{suffix}", "-o", "json"))["data"]
        return base64.b64decode(data[key]).decode()

    def call(self, method, path, body=None, token=None):
        """Status and decoded body. The certificate is checked against the name that pods use."""
        context = ssl.create_default_context(cadata=self.ca)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NamedHttps(context, f"{self.name}.{self.namespace}.svc"))
        request = urllib.request.Request(f"https://{self.address}{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"})
        end = time.monotonic() + 5 * BUSY
        while True:
            try:
                with opener.open(request, timeout=60) as reply:
                    return reply.status, _decode(reply)
            except urllib.error.HTTPError as error:
                return error.code, _decode(error)
            except urllib.error.URLError as error:  # a Service leads nowhere for a moment after its pod got ready
                if getattr(error.reason, "errno", None) not in (errno.ECONNREFUSED, errno.EHOSTUNREACH) or time.monotonic() > end:
                    raise
            time.sleep(0.3)

    def get(self, path):
        status, body = self.call("GET", path)
        assert status == 200, (path, status, body)
        return body

    def submit(self, job):
        status, body = self.call("POST", "/v1/namespaces/default/trainingJobs", job)
        assert status == 201, (status, body)
        return body

    def job(self, name):
        return self.get(f"/v1/namespaces/default/trainingJobs/{name}")

    def step(self, name):
        return int(self.job(name)["status"].get("step", 0))

    def checkpoint(self, name):
        """Step of the newest complete checkpoint."""
        found = re.search(r"step-0*(\d+)$", self.job(name)["status"].get("checkpoint", ""))
        return int(found[1]) if found else 0

    def finished(self, name, seconds=240):
        def ended():
            job = self.job(name)
            return job if job["status"].get("state") in ("succeeded", "failed", "cancelled") else None
        return wait_for(f"end of {name}", seconds, ended)

    def cancel(self, name):
        status, body = self.call("POST", f"/v1/namespaces/default/trainingJobs/{name}:cancel", {})
        assert status == 200, (status, body)
        assert self.finished(name)["status"]["state"] == "cancelled"

    def goes_on_from_a_checkpoint(self, name):
        """Workers of a later epoch begin from one and make steps that were not made before."""
        def resumed():
            text = self.get(f"/v1/namespaces/default/trainingJobs/{name}/logs?rank=0").get("text", "")
            return [match for match in re.findall(r"event=joined .*epoch=(\d+) .*resume_from=/\S+/step-0*(\d+)", text) if int(match[0]) > 1]
        wait_for("workers of a later epoch", 300, resumed)
        before = self.step(name)
        wait_for("further steps", 180, lambda: self.step(name) > before + 20)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def query(port, expression):
    """What a Prometheus of this machine knows; nothing while it starts."""
    text = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/api/v1/query?{text}", timeout=10) as reply:
            return json.load(reply)["data"]["result"]
    except OSError:
        return []


class Forward:
    """`with Forward(namespace, service, port) as local:` a port of this machine, by the Service's name as pods see it."""

    def __init__(self, namespace, service, port):
        self.words = ["kubectl", "-n", namespace, "port-forward", f"service/{service}", f":{port}"]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()  # Forwarding from 127.0.0.1:40001 -> 7444
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, f"{' '.join(self.words)}: {line}"
        return int(found[1])

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def _decode(reply):
    text = reply.read().decode()
    return json.loads(text) if "json" in reply.headers.get("Content-Type", "") else text


class _NamedHttps(urllib.request.HTTPSHandler):
    """Connects to an address and expects the certificate of a name."""

    def __init__(self, context, name):
        super().__init__(context=context)
        self.tls, self.server_name = context, name

    def https_open(self, request):
        tls, name = self.tls, self.server_name

        class Connection(http.client.HTTPSConnection):
            def connect(self):
                http.client.HTTPConnection.connect(self)
                self.sock = tls.wrap_socket(self.sock, server_hostname=name)

        return self.do_open(Connection, request)


def small_job(name, steps=20, **spec):
    job = {
        "model": {"preset": "llama-1m"},
        "data": {"train": "/example/data/train-*.bin", "validation": "/example/data/validation-*.bin", "sequenceLength": 32},
        "workers": {"count": 2, "batch": 2},
        "subnetwork": {"granularity": "block", "coverage": 0.5, "minHolders": 1},
        "schedule": {"steps": steps},
        "resources": {"cpuThreads": 1},
        "evaluation": {"tokens": 512},
    }
    job.update(spec)
    return {"name": name, "spec": job}


