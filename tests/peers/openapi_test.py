"""The HTTP door against tools that nobody here wrote: what /openapi.json says is valid, true, and enough for a client."""

import importlib
import json
import pathlib
import subprocess
import sys
import time

from local_service import ServiceTestCase, main

BIN = pathlib.Path(sys.executable).parent
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
          "response_schema_conformance,unsupported_method,ignored_auth,missing_required_header")


class OpenApi(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.start_daemon("--rate-limit", "0")

    def document(self):
        reply = self.rest("GET", "/openapi.json", token="")
        self.assertEqual(reply.status, 200)
        return reply.json

    def test_document_is_valid_3_1_and_has_every_route(self):
        from openapi_spec_validator import OpenAPIV31SpecValidator

        document = self.document()
        self.assertEqual([str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()], [])
        operations = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
        for wanted in ("POST /v1/namespaces/{namespace}/trainingJobs", "GET /v1/namespaces/{namespace}/trainingJobs/{name}:watch",
                       "PATCH /v1/namespaces/{namespace}/trainingJobs/{name}", "GET /v1/nodes", "GET /healthz", "GET /"):
            self.assertIn(wanted, operations)
        job = document["components"]["schemas"]["TrainingJob"]["properties"]
        self.assertTrue(job["uid"]["readOnly"])
        self.assertIn("RFC 1123", job["name"]["description"])

    def schemathesis(self, *options):
        run = subprocess.run(
            [BIN / "schemathesis", "run", self.endpoint()["rest"] + "/openapi.json", "--header",
             f"Authorization: Bearer {self.token()}", "--checks", CHECKS, "--seed", "7", "--request-timeout", "30",
             "--generation-database", "none", "--no-color", "--workers", "1", *options],
            cwd=self.folder, env={**self.environment, "NO_PROXY": "*"}, capture_output=True, text=True, timeout=500)
        self.assertEqual(run.returncode, 0, run.stdout[-8000:] + run.stderr[-2000:])
        self.assertEqual(self.rest("GET", "/healthz").status, 200)

    def test_schemathesis_finds_no_undocumented_answer_and_no_5xx(self):
        self.schemathesis("--phases", "coverage,fuzzing", "--max-examples", "15", "--exclude-path-regex", ":watch$")

    def test_schemathesis_finds_none_either_where_there_is_a_job(self):
        self.prepare_data(300)
        self.tessera("submit", self.job_file("resident", schedule={"steps": 3}))
        self.wait_for_state("succeeded", name="resident")
        (self.folder / "schemathesis.toml").write_text(
            '[parameters]\n"path.namespace" = "default"\n"path.name" = "resident"\n')
        self.schemathesis("--phases", "coverage,fuzzing", "--max-examples", "15", "--include-path-regex", "{name}",
                          "--exclude-path-regex", ":watch$", "--exclude-method", "DELETE")
        self.assertEqual(self.state_of("resident"), "succeeded")

    def test_generated_client_submits_reads_and_deletes(self):
        self.prepare_data(300)
        path = self.folder / "openapi.json"
        path.write_text(json.dumps(self.document()))
        made = subprocess.run([BIN / "openapi-python-client", "generate", "--path", str(path), "--meta", "none",
                               "--output-path", str(self.folder / "tessera_client")],
                              cwd=self.folder, env={**self.environment, "PATH": f"{BIN}:{self.environment['PATH']}"},
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        client_module = importlib.import_module("tessera_client")
        models = importlib.import_module("tessera_client.models")
        def call(name):
            return importlib.import_module(f"tessera_client.api.job_service.{name}").sync_detailed

        client = client_module.AuthenticatedClient(self.endpoint()["rest"], self.token(),
                                                   httpx_args={"trust_env": False})
        job = json.loads((pathlib.Path(self.job_file("made"))).read_text())
        job["spec"]["suspend"] = True
        for field in ("train", "validation"):
            job["spec"]["data"][field] = str(self.folder / job["spec"]["data"][field])
        spec = {key: value for key, value in job["spec"].items() if key != "data"}
        spec["data"] = {"train": job["spec"]["data"]["train"], "validation": job["spec"]["data"]["validation"],
                        "sequenceLength": 32}
        spec["subnetwork"] = {"coverage": 0.5, "minHolders": 1}
        created = call("create_training_job")("default", client=client,
                                              body=models.TrainingJob.from_dict({"name": "made", "spec": spec}))
        self.assertEqual(created.status_code, 201, created.content)
        self.assertEqual(created.parsed.training_job.name, "made")
        read = call("get_training_job")("default", "made", client=client)
        self.assertEqual(read.parsed.spec.workers.count, 2)
        listed = call("list_training_jobs")("default", client=client, filter_='name = "made"')
        self.assertEqual([one.name for one in listed.parsed.training_jobs], ["made"])
        refused = call("get_training_job")("default", "none", client=client)
        self.assertEqual((refused.status_code, refused.parsed.code), (404, "NOT_FOUND"))
        gone = call("delete_training_job")("default", "made", client=client)
        self.assertEqual(gone.status_code, 200)
        deadline = time.monotonic() + 120
        while self.job("made") is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertIsNone(self.job("made"))


if __name__ == "__main__":
    main()
