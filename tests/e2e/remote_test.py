"""A service that other machines reach: TLS, contexts, rotation, rates, and what is written of it all."""

import json
import ssl
import urllib.request

from local_service import ServiceTestCase, main


class Remote(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.tls = self.folder / "tls"
        self.tessera("certs", "--out", str(self.tls), "--host", "lab.example")
        self.start_daemon("--tls-host", "127.0.0.1", "--tls-cert", str(self.tls / "server.pem"), "--tls-key",
                          str(self.tls / "server.key"))
        words = dict(word.split("=", 1) for word in self.daemon.stdout.readline().split()[1:])
        self.grpc, self.https = words["grpc"], words["rest"]

    def ask(self, path="/v1/nodes"):
        request = urllib.request.Request(self.https + path, headers={"Authorization": f"Bearer {self.token()}"})
        context = ssl.create_default_context(cafile=str(self.tls / "ca.pem"))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=120) as reply:
            return json.loads(reply.read())

    def served_certificate(self, address):
        host, port = address.removeprefix("https://").split(":")
        return ssl.get_server_certificate((host, int(port)))

    def test_commands_work_over_tls_by_a_context_and_refuse_another_authority(self):
        self.assertEqual(len(self.ask()["nodes"]), 1)
        own = str(self.state / "token")
        self.tessera("context", "add", "lab", "--address", self.grpc, "--token-file", own, "--ca", str(self.tls / "ca.pem"))
        self.tessera("nodes")
        self.assertIn("lab", self.tessera("context", "list").stdout)
        self.assertEqual(json.loads(self.tessera("context", "list", "-o", "json").stdout)[1]["name"], "lab")
        other = self.folder / "other"
        self.tessera("certs", "--out", str(other))
        refused = self.tessera("nodes", "--ca", str(other / "ca.pem"), expect=5)
        self.assertIn("no answer", refused.text)
        self.tessera("nodes", "--context", "none", expect=2)
        self.tessera("context", "use", "local")
        self.tessera("nodes")

    def test_a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not(self):
        before = [self.served_certificate(address) for address in (self.https, self.grpc)]
        self.tessera("certs", "--out", str(self.tls))
        for address, old in zip((self.https, self.grpc), before):
            self.wait(f"{address} to serve the new certificate", lambda: self.served_certificate(address) != old)
        now = self.served_certificate(self.https)
        (self.tls / "server.pem").write_text("nothing")
        self.wait("the broken certificate to be noticed",
                  lambda: "event=certificate_refused" in (self.state / "tesserad.log").read_text() or not self.ask())
        self.assertEqual(self.served_certificate(self.https), now)
        self.ask()

    def test_a_new_token_counts_without_a_restart(self):
        old = self.token()
        new = self.state / "token.new"
        new.write_text("b" * 64 + "\n")
        new.chmod(0o600)
        new.rename(self.state / "token")
        self.wait("the old token to be refused", lambda: self.rest("GET", "/v1/nodes", token=old).status == 401)
        self.assertEqual(self.rest("GET", "/v1/nodes").status, 200)
        self.tessera("nodes")
        self.assertNotIn("b" * 64, (self.state / "tesserad.log").read_text())

    def test_calls_that_change_something_are_written_down_and_tokens_are_not(self):
        self.prepare_data(300)
        self.tessera("submit", self.job_file(env={"SECRET": "sesame"}))
        self.rest("POST", "/v1/namespaces/default/trainingJobs/tiny:suspend")
        self.rest("POST", "/v1/namespaces/default/trainingJobs/none:cancel")
        log = (self.state / "tesserad.log").read_text()
        for line in ("event=audit protocol=grpc method=JobService.CreateTrainingJob job=default/tiny user=token-holder peer=127.0.0.1 code=OK",
                     "event=audit protocol=rest method=JobService.SuspendTrainingJob job=default/tiny user=token-holder peer=127.0.0.1 code=OK",
                     "event=audit protocol=rest method=JobService.CancelTrainingJob job=default/none user=token-holder peer=127.0.0.1 code=NOT_FOUND"):
            self.assertIn(line, log)
        self.assertNotIn("sesame", log)
        self.assertNotIn(self.token(), log)

    def test_tls_options_that_do_not_go_together_are_refused(self):
        for arguments in (("--tls-host", "127.0.0.1"), ("--tls-cert", str(self.tls / "server.pem")),
                          ("--tls-grpc-port", "7")):
            self.assertEqual(self.run_daemon(*arguments).returncode, 2, arguments)
        key = self.tls / "server.key"
        key.chmod(0o644)
        open_key = self.run_daemon(
            "--state-dir", str(self.folder / "second"), "--tls-host", "127.0.0.1", "--tls-cert",
            str(self.tls / "server.pem"), "--tls-key", str(key))
        self.assertEqual(open_key.returncode, 1)
        self.assertIn("can be read by others", open_key.stderr)


if __name__ == "__main__":
    main()
