"""Dashboards and rules against a real job: each panel's query returns data from a Prometheus that scrapes it, and
nothing names a series or a page that does not exist. Needs no cluster: a daemon of this machine trains."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from kube import BUSY, ROOT, free_port, query, run, wait_for

BIN = pathlib.Path(os.environ["TESSERA_BIN"])
BOARDS = sorted((ROOT / "dashboards").glob("*.json"))


def panels():
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield path.stem, panel, target["expr"]


def names(text):
    found = set(re.findall(r"\btessera_[a-z_]+", text)) - {"tessera_namespace", "tessera_job", "tessera_rank"}
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}


class DashboardsTest:
    def prepare(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-dashboards-"))
        state = self.folder / "state"
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i} and {i * i}, said the clock.\n" for i in range(4000)))
        run(BIN / "tessera", "data", "prepare", "--input", text, "--tokenizer", "byte", "--out", self.folder / "data")
        self.daemon = subprocess.Popen([BIN / "tesserad", "--state-dir", state], stdout=subprocess.PIPE, text=True)
        self.rest = re.search(r"rest=http://(\S+)", self.daemon.stdout.readline())[1]
        self.tessera = [BIN / "tessera", "--state-dir", state]
        job = self.folder / "job.yaml"
        job.write_text(json.dumps({"name": "watched", "spec": {
            "model": {"preset": "llama-1m"}, "data": {"train": str(self.folder / "data/train-*.bin"), "sequenceLength": 32},
            "workers": {"count": 2, "batch": 2}, "subnetwork": {"coverage": 0.5, "minHolders": 1}, "schedule": {"steps": 100000},
            "resources": {"cpuThreads": 1}, "checkpoint": {"interval": 20}}}))
        self.port = free_port()
        token = state / "token"
        (self.folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{ROOT}/dashboards/rules.yaml]
scrape_configs:
- job_name: tessera
  honor_labels: true
  authorization: {{credentials_file: {token}}}
  static_configs: [{{targets: ["{self.rest}"]}}]
- job_name: workers
  honor_labels: true
  http_sd_configs: [{{url: "http://{self.rest}/v1/prometheusTargets", refresh_interval: 1s, authorization: {{type: Bearer, credentials_file: {token}}}}}]
""")
        self.prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"], stderr=subprocess.DEVNULL)
        # A counter's growth shows only to who saw it before.
        wait_for("scraped daemon", 30, lambda: self._query("tessera_build_info"))
        run(*self.tessera, "submit", job)

    def finish(self):
        for process in (getattr(self, "prometheus", None),):
            if process:
                process.terminate()
                process.wait()
        if getattr(self, "daemon", None):
            subprocess.run([*self.tessera, "cancel", "watched"], capture_output=True, check=False)
            subprocess.run([*self.tessera, "watch", "watched"], capture_output=True, timeout=60 * BUSY, check=False)
            self.daemon.terminate()
            self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _query(self, expression):
        return query(self.port, expression)

    def has_data_for_every_panel(self):
        variables = {"$__rate_interval": "15s", "$__range": "5m", "$namespace": "default", "$job": "watched"}
        missing = []

        def empty():
            missing[:] = []
            for board, panel, expression in panels():
                for name, value in variables.items():
                    expression = expression.replace(name, value)
                if not any(sample["value"][1] != "NaN" for sample in self._query(expression)):
                    missing.append(f"{board}: {panel['title']}: {expression}")
            return not missing
        try:
            wait_for("data", 90, empty)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *missing])) from None

    def names_only_series_that_exist(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/label/__name__/values", timeout=10) as reply:
            real = names(" ".join(json.load(reply)["data"]))
        real |= {"tessera_worker_failures_total"}  # appears with the first failure
        used = {name for _, _, expression in panels() for name in names(expression)}
        used |= names(re.sub(r"(?m)#.*$|runbook_url.*$|- record:.*$", "", (ROOT / "dashboards/rules.yaml").read_text()))
        assert used <= real, f"not served: {sorted(used - real)}"

    def evaluates_every_rule(self):
        def evaluated():
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=10) as reply:
                rules = [rule for group in json.load(reply)["data"]["groups"] for rule in group["rules"]]
            assert len(rules) == 12 and all(rule["health"] == "ok" for rule in rules), rules
            return True
        wait_for("evaluation of all rules", 20, evaluated)

    def describes_every_panel_and_gives_it_a_unit(self):
        for board, panel, _ in panels():
            assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"], f"{board}: {panel['title']}"

    def alerts_as_its_unit_tests_say(self):
        run("promtool", "test", "rules", ROOT / "dashboards/rules_test.yaml")

    def links_each_alert_to_a_section_of_the_runbook(self):
        text = (ROOT / "docs/kubernetes/troubleshooting.md").read_text()
        anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)$", text)}
        for anchor in re.findall(r"runbook_url: \S+#(\S+)", (ROOT / "dashboards/rules.yaml").read_text()):
            assert anchor in anchors, f"troubleshooting.md has no section #{anchor}"


TESTS = DashboardsTest
