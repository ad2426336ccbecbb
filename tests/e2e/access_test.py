"""Who may speak: tokens of callers, what is refused, and that nothing is stored of it."""

import json

from local_service import ServiceTestCase, main

JOBS = "/v1/namespaces/default/trainingJobs"


class Access(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_token_missing_or_wrong_is_401_and_names_the_file(self):
        for token in ("", "0" * 64):
            reply = self.rest("GET", JOBS, token=token)
            self.assertEqual(reply.status, 401)
            self.assertEqual(reply.json["status"], 401)
            self.assertIn("token", reply.json["detail"])
        self.assertEqual(self.rest("GET", "/metrics", token="").status, 401)
        self.assertEqual(self.rest("GET", "/healthz", token="").status, 200)

        path = self.state / "token"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        right = path.read_text()
        wrong = self.folder / "wrong"
        wrong.write_text("0" * 64 + "\n")
        refused = self.tessera("list", "--token-file", str(wrong), expect=5)
        self.assertIn(str(wrong), refused.text)
        missing = self.tessera("list", "--token-file", str(self.folder / "none"), expect=5)
        self.assertIn(str(self.folder / "none"), missing.text)
        path.write_text("1" * 64 + "\n")  # counts once the daemon has looked again
        self.wait("the new token to count", lambda: self.rest("GET", JOBS, token="1" * 64).status == 200)
        self.assertEqual(self.rest("GET", JOBS, token=right.strip()).status, 401)
        self.tessera("list")
        path.unlink()
        self.assertIn(str(path), self.tessera("list", expect=5).text)
        path.touch(mode=0o600)
        path.write_text(right)
        self.wait("the first token to count again", lambda: self.rest("GET", JOBS, token=right.strip()).status == 200)
        self.tessera("list")

    def test_malformed_jobs_get_every_complaint_and_are_not_stored(self):
        job = {"name": "Bad_Name", "spec": {
            "model": {"preset": "llama-1m"}, "data": {"train": "data", "sequence_length": -4},
            "workers": {"count": 0}, "subnetwork": {"coverage": 1.5}, "optimizer": {"learning_rate": -1}}}
        path = self.folder / "bad.json"
        path.write_text(json.dumps(job))
        for command in ("submit", "train", "plan", "validate"):
            refused = self.tessera(command, str(path), expect=2)
            for field in ("name", "spec.data.sequenceLength", "spec.workers.count", "spec.subnetwork.coverage",
                          "spec.optimizer.learningRate", "spec.schedule"):
                self.assertIn(field, refused.text, command)
        reply = self.rest("POST", JOBS, job)
        self.assertEqual(reply.status, 400)
        for field in ("spec.subnetwork.coverage", "spec.workers.count", "spec.schedule"):
            self.assertIn(field, reply.text)
        for text, complaint in (("name: x\nspec:\n  modell: {}\n", "spec.modell"), ("{", "bad.yaml"), ("", "bad.yaml"),
                                ("name: x\nspec: {workers: {count: many}}\n", "spec.workers.count")):
            (self.folder / "bad.yaml").write_text(text)
            self.assertIn(complaint, self.tessera("submit", str(self.folder / "bad.yaml"), expect=2).text)
        self.assertIn("none.yaml", self.tessera("submit", str(self.folder / "none.yaml"), expect=2).text)
        self.assertEqual(self.rest("GET", JOBS).json.get("trainingJobs", []), [])

    def test_what_is_not_there_yet_is_refused_by_the_name_of_its_field(self):
        self.prepare_data(300)
        for field, change in (("dropping.rule", {"sharding": "fsdp", "dropping": {"mode": "enforce", "rule": "magnitude"}}),
                              ("dropping.workerLimits[0].pattern", {"dropping": {"mode": "enforce", "workerLimits": [{"max": 0.5}]}})):
            refused = self.tessera("submit", self.job_file(**change), expect=2)
            self.assertIn(field, refused.text)
        refused = self.tessera("submit", self.job_file(model={"preset": "llama-9000b"}), expect=None)
        self.assertIn(refused.returncode, (1, 2), refused.text)
        self.assertIn("llama-9000b", refused.text)
        refused = self.tessera("submit", self.job_file(data={"train": "nowhere/*.bin"}), expect=None)
        self.assertIn(refused.returncode, (1, 2), refused.text)
        self.assertIn("nowhere", refused.text)
        self.assertEqual(self.rest("GET", JOBS).json.get("trainingJobs", []), [])

    def test_plan_shows_what_a_job_would_need_and_stores_nothing(self):
        self.prepare_data(300)
        self.assertRegex(self.tessera("plan", self.job_file()).stdout, "(?i)ddp")
        plan = json.loads(self.tessera("plan", self.job_file(), "-o", "json").stdout)
        self.assertEqual(len(plan["workers"]), 2)
        self.assertEqual(self.rest("GET", JOBS).json.get("trainingJobs", []), [])

    def test_job_that_does_not_fit_is_refused_with_numbers(self):
        self.prepare_data(300)
        refused = self.tessera("submit", self.job_file(resources={"memory_limit_bytes": "2MiB"}), expect=None)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.text, r"does not fit")
        self.assertEqual(self.rest("GET", JOBS).json.get("trainingJobs", []), [])


if __name__ == "__main__":
    main()
