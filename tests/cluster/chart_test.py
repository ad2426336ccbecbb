"""The chart without a cluster's help: goldens, refusals of wrong values, documentation, and the server's dry run."""
import functools
import json
import os
import pathlib
import re
import sys

from kube import CHART, ROOT, kubectl, run

GOLDEN = pathlib.Path(__file__).parent / "golden"
VALUE_SETS = {
    "default": [],
    "given": ["tls.source=secret", "tls.secretName=own-tls", "auth.existingSecret=own-token", "storage.existingClaim=runs",
              "data.existingClaim=corpus", "data.example=false", "image.digest=sha256:" + "a" * 64, "service.type=NodePort"],
    "pods": ["workers.mode=pods", "storage.accessMode=ReadWriteMany", "auth.tokenReview.enabled=true", "data.existingClaim=corpus",
             "networkPolicy.from[0].namespaceSelector.matchLabels.team=ml"],
    "queued": ["workers.mode=pods", "storage.type=hostPath", "storage.hostPath=/srv/tessera", "agent.enabled=false", "trainingJobs.enabled=false",
               "workers.kueueQueue=team", "workers.serveMetrics=true", "monitoring.podMonitor.enabled=true", "workers.priorityClassName=batch", "workers.memory=64Gi",
               "data.claims[0].claim=text", "data.claims[0].mountPath=/text"],
    "replicas": ["workers.mode=pods", "storage.accessMode=ReadWriteMany", "replicas=2", "storage.records=kubernetes", "env.TZ=UTC"],
    "scoped": ["scope=namespace", "workers.mode=pods", "storage.accessMode=ReadWriteMany", "storage.records=kubernetes"],
    "watched": ["tls.source=certManager", "tls.issuerRef.name=company", "storage.type=emptyDir", "monitoring.serviceMonitor.enabled=true",
                "monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true", "networkPolicy.enabled=false"],
}
REFUSED = {  # wrong values, and what the answer has to name
    "tls.source=letsencrypt": ("tls", "generated", "secret", "certManager"),
    "imgae.tag=1": ("imgae",),
    "service.restPort=0": ("restPort",),
    "storage.size=lots": ("size", "lots"),
    "tls.source=secret": ("tls.secretName is needed with tls.source=secret",),
    "tls.source=certManager": ("tls.issuerRef.name is needed",),
    "storage.type=hostPath": ("storage.hostPath is needed",),
    "workers.mode=pods,storage.type=emptyDir": ("cannot be shared with worker pods",),
    "image.digest=latest": ("digest",),
    "data.claims[0].claim=text": ("mountPath",),
    "monitoring.podMonitor.enabled=true": ("monitoring.podMonitor needs workers.mode=pods",),
    "agent.imgae=x": ("imgae",),
    "replicas=0": ("replicas",),
    "replicas=2": ("replicas above 1 need workers.mode=pods",),
    "storage.records=kubernetes": ("storage.records=kubernetes needs workers.mode=pods",),
    "storage.records=etcd": ("records",),
    "scope=team": ("scope", "cluster", "namespace"),
    "scope=namespace,workers.mode=pods,auth.tokenReview.enabled=true": ("auth.tokenReview needs scope=cluster",),
    "auth.tokenReview.enabled=true": ("auth.tokenReview needs workers.mode=pods",),
}


def settings(values):
    return [part for value in values for part in ("--set", value)]


@functools.cache
def rendered(name, helm="helm"):
    """What is random or long is replaced, so that the golden shows what people decide about."""
    text = run(helm, "template", "demo", CHART, "-n", "training", *settings(VALUE_SETS[name]))
    text = re.sub(r"(?m)^(\s+(?:token|ca\.crt|tls\.crt|tls\.key): )\S+$", r"\1<secret>", text)
    text = re.sub(r"helm-test-\w+", "helm-test-<random>", text)
    text = re.sub(r"(?m)^    Line \d+ of 400.*\n", "", text)
    text = re.sub(r'(?m)^(  \w+\.json: ).*$', r"\1<dashboard>", text)
    return text


class ChartTest:
    def lints_without_a_warning(self):
        for helm in ("helm", "helm3"):
            run(helm, "lint", "--strict", CHART)

    def renders_what_the_goldens_show(self):
        for name in VALUE_SETS:
            path, text = GOLDEN / f"{name}.yaml", rendered(name)
            if os.environ.get("TESSERA_WRITE_GOLDENS"):
                path.write_text(text)
            assert path.read_text() == text, f"{path} differs; see with TESSERA_WRITE_GOLDENS=1 and git diff"

    def renders_the_same_with_helm_3_and_4(self):
        for name in VALUE_SETS:
            assert sorted(rendered(name).splitlines()) == sorted(rendered(name, "helm3").splitlines())

    def makes_nothing_outside_its_namespace_where_it_may_not(self):
        import yaml
        for name, values in VALUE_SETS.items():
            if "auth.tokenReview.enabled=true" in values:
                continue
            text = run("helm", "template", "demo", CHART, "-n", "training", *settings([*values, "scope=namespace"]))
            outside = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "PersistentVolume", "Namespace"}
            made = {made["kind"] for made in yaml.safe_load_all(text) if made}
            assert made and not made & outside, f"{name}: {made & outside}"
        administrators = run("helm", "template", "tessera", CHART, "--set", "workers.mode=pods,storage.accessMode=ReadWriteMany,storage.records=kubernetes",
                             "--show-only", "templates/trainingjobs.yaml")
        assert {made["metadata"]["name"] for made in yaml.safe_load_all(administrators)} == {"trainingjobs.tessera.dev", "trainingrecords.tessera.dev"}

    def refuses_wrong_values_by_name(self):
        for value, words in REFUSED.items():
            done = run("helm", "template", "demo", CHART, "--set", value, check=False)
            assert done.returncode != 0, f"{value} was taken"
            for word in words:
                assert word in done.stderr, f"{value}: '{word}' is not in {done.stderr}"

    def documents_every_value(self):
        text = (ROOT / "docs/kubernetes/values.md").read_text()
        assert text == run(sys.executable, ROOT / "helm/values_reference.py"), "run: python3 helm/values_reference.py > docs/kubernetes/values.md"

    def schema_and_values_name_the_same(self):
        import yaml
        schema = json.loads((CHART / "values.schema.json").read_text())

        def compare(values, schema, path):
            names = schema.get("properties")
            if names is None or not isinstance(values, dict):
                return
            assert set(names) - {"global"} == set(values), f"{path}: {set(names) ^ set(values)}"
            for key, value in values.items():
                compare(value, names[key], f"{path}.{key}")
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        for part in ("requests", "limits"):
            values["resources"][part] = {}
        compare(values, schema, "values")

    def is_taken_by_the_api_server(self):
        for name in ("default", "given", "pods", "replicas"):
            kubectl("apply", "--dry-run=server", "-n", "default", "-f", "-",
                    text=run("helm", "template", "demo", CHART, "-n", "default", "--no-hooks", *settings(VALUE_SETS[name])))


TESTS = ChartTest
