"""The console in Debian's Chromium, against a real daemon with a real job."""

import json
import os
import pathlib
import re
import shutil

from local_service import ServiceTestCase, main

CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("TESSERA_CONSOLE_PICTURES")  # a folder: what the pages look like is kept there


class Console(ServiceTestCase):
    @classmethod
    def setUpClass(cls):
        from playwright.sync_api import sync_playwright

        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.prepare_data()

    def open(self, width=1280, height=900, scheme="light", sign_in=True):
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(60000)
        self.faults = []
        self.requests = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.faults.append(message.text))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(self.endpoint()["rest"] + "/")
        if sign_in:
            page.get_by_label("Token").fill(self.token())
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("heading", name="Jobs").wait_for()
        return page

    def picture(self, page, name):
        if PICTURES:
            page.screenshot(path=str(pathlib.Path(PICTURES) / f"{name}.png"), full_page=True)

    def assert_accessible(self, page, where):
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(page).response["violations"]
        serious = [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("serious", "critical")]
        self.assertEqual(serious, [], where)

    def assert_fits(self, page, where):
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.assertLessEqual(wider, 0, f"{where} scrolls sideways")

    def test_sign_in_keeps_the_token_in_memory_and_nothing_else_is_asked_for(self):
        page = self.open(sign_in=False)
        page.get_by_label("Token").fill("wrong" * 10)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("The service refuses this token.").wait_for()
        self.picture(page, "login")
        self.assert_accessible(page, "login")
        self.faults.clear()  # the browser reports the 401
        page.get_by_label("Token").fill(self.token())
        page.keyboard.press("Enter")
        page.get_by_text("No jobs yet").wait_for()
        self.picture(page, "empty")
        self.assert_accessible(page, "empty list")
        stored = page.evaluate("JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage}) + document.cookie")
        self.assertNotIn(self.token(), stored)
        own = self.endpoint()["rest"]
        self.assertEqual([url for url in self.requests if not url.startswith((own, "data:"))], [])
        policy = page.request.get(own + "/").headers["content-security-policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(self.faults, [])
        page.reload()
        page.get_by_label("Token").wait_for()

    def test_a_running_job_is_shown_live_and_can_be_cancelled(self):
        job = self.job_file("live", schedule={"steps": 100000}, workers={"count": 3, "batch": 1},
                            evaluation={"interval": 5, "tokens": 256}, dropping={"mode": "shadow", "density": 0.3})
        self.tessera("submit", job)
        page = self.open()
        page.get_by_role("link", name="live", exact=True).click()
        self.wait_for_state("running", "warmup", name="live")
        page.locator(".chip.running, .chip.warmup").wait_for()

        # The mask heat map is the plan's.
        plan = self.rest("GET", "/v1/namespaces/default/trainingJobs/live/plans/1").json
        page.locator("table.heat td[data-unit]").first.wait_for()
        shown = page.evaluate("[...document.querySelectorAll('td[data-unit]')].map(t => [t.dataset.unit, +t.dataset.rank, t.dataset.held])")
        always = {unit["name"] for unit in plan["units"] if unit.get("alwaysOn")}
        expected = [[unit["name"], rank, "1" if rank in unit.get("holders", []) or unit["name"] in always else "0"]
                    for rank in range(3) for unit in plan["units"]]
        self.assertEqual(shown, expected)
        self.assertIn("0", [held for _, _, held in shown])

        # Curves move; memory stands against the prediction.
        # However slow the machine is: given up only when the job does not get on either.
        step = lambda: self.step_of("live")  # noqa: E731
        curve = page.locator("section[aria-label=Loss] p.hidden")
        drawn = lambda: int((re.search(r"step (\d+)", curve.text_content()) or [0, -1])[1])  # noqa: E731
        self.wait("a loss curve", lambda: drawn() >= 0, progress=step)
        page.locator("section[aria-label=Loss] canvas").wait_for()
        first = drawn()
        self.wait("the loss curve to grow", lambda: drawn() > first, progress=step)
        self.wait("the service to tell of an evaluation", lambda: self.status("live").get("validationLoss"), progress=step)
        validation = page.locator("section[aria-label=Loss] .key b").nth(1)
        self.wait("a validation loss", lambda: re.search(r"\d\.\d{4}", validation.text_content()), progress=step)
        worker = self.status("live")["workers"][0]
        self.assertGreater(worker["memoryPeakBytes"], 0)
        self.assertEqual(page.locator("#workers tbody tr").count(), 3)
        budgets = page.evaluate("[...document.querySelectorAll('#budgets td[data-kept]')].map(t => +t.dataset.kept)")
        self.assertEqual(budgets, plan["dropping"]["kept"])
        page.locator("#budgets td[data-kept]").first.focus()
        self.assertIn(plan["dropping"]["parameters"][0], page.locator("#budgets p.hint").text_content())
        page.get_by_role("button", name="Explain").click()
        page.locator("#why li").first.wait_for()
        page.locator("#events li", has_text="WorkersStarted").wait_for()
        self.wait("the log", lambda: len(page.locator("pre.log").text_content()) > 100)
        self.assert_accessible(page, "job")
        self.assert_fits(page, "job at 1280")
        self.picture(page, "job-light")
        page.emulate_media(color_scheme="dark")
        self.picture(page, "job-dark")
        self.assert_accessible(page, "job, dark")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 400, "height": 850})
        self.assert_fits(page, "job at 400")
        self.picture(page, "job-400")
        page.set_viewport_size({"width": 1280, "height": 900})

        # By keyboard alone: tiles, then cancel with a confirmation.
        page.locator("td[data-unit]").first.focus()
        page.keyboard.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.dataset.unit"), plan["units"][1]["name"])
        page.get_by_role("button", name="Resize").press("Enter")
        page.get_by_role("spinbutton", name="Workers").fill("0")
        page.keyboard.press("Enter")
        self.assertEqual(page.get_by_role("dialog").count(), 1, "no number of workers")
        page.get_by_role("spinbutton", name="Workers").fill("2")
        self.picture(page, "resize")
        self.assert_accessible(page, "resize")
        page.keyboard.press("Enter")
        page.locator("#events li", has_text="from 3 to 2 workers").wait_for()
        page.get_by_role("button", name="Cancel").focus()
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        self.assert_accessible(page, "dialog")
        page.keyboard.press("Escape")
        self.assertFalse(self.status("live").get("cancelRequested", False))
        page.get_by_role("button", name="Cancel").press("Enter")
        page.get_by_role("button", name="Cancel the job").press("Enter")
        page.locator(".chip.cancelled").wait_for()
        self.wait_for_state("cancelled", name="live")
        page.get_by_role("button", name="Delete").wait_for()
        self.assertEqual(self.faults, [])

    def test_nodes_show_their_links_as_a_matrix(self):
        for report in ({"node": {"name": "node-a"}}, {"node": {"name": "node-b"}},
                       {"node": {"name": "node-a"}, "links": [
                           {"peer": "node-b", "roundTripSeconds": 0.002, "leastRoundTripSeconds": 0.001, "confidence": 0.9,
                            "bandwidthBytesPerSecond": 1e7, "receiveBandwidthBytesPerSecond": 2e7}]}):
            self.assertEqual(self.rest("POST", "/v1/nodes:report", report).status, 200)
        page = self.open()
        page.get_by_role("link", name="Nodes").click()
        page.locator("table.heat td[data-link='1']").first.wait_for()
        self.assertEqual(page.locator("table.heat td[data-link='1']").count(), 2)
        page.locator("table.heat td").first.focus()
        page.keyboard.press("ArrowRight")
        reading = page.locator("section[aria-label='Links between nodes'] p.hint")
        self.assertIn("node-a to node-b: 9.5 MiB/s, round trip 2.00 ms (least 1.00 ms)", reading.text_content())
        self.assert_accessible(page, "nodes")
        self.picture(page, "nodes")
        page.set_viewport_size({"width": 400, "height": 850})
        self.assert_fits(page, "nodes at 400")
        self.assertEqual(self.faults, [])

    def test_an_ended_job_shows_all_of_its_run_and_lists_work_at_400_pixels(self):
        self.tessera("submit", self.job_file("done", schedule={"steps": 12}))
        self.wait_for_state("succeeded", name="done")
        page = self.open(400, 850)
        self.assert_fits(page, "list at 400")
        self.picture(page, "list-400")
        self.assert_accessible(page, "list")
        page.set_viewport_size({"width": 1280, "height": 900})
        self.picture(page, "list-light")
        page.keyboard.press("/")
        page.keyboard.type("nothing")
        page.get_by_text("No job matches").wait_for()
        page.get_by_label("Names that contain").fill("on")
        page.get_by_label("State").select_option("succeeded")
        page.get_by_role("link", name="done").click()
        page.locator(".chip.succeeded").wait_for()
        curve = page.locator("section[aria-label=Loss] p.hidden")
        self.wait("the whole curve", lambda: curve.text_content().endswith("step 12"))
        page.get_by_text("ended", exact=True).wait_for()
        page.locator("#checkpoints tbody tr", has_text="12").wait_for()
        self.picture(page, "ended")
        self.wait("the log", lambda: len(page.locator("pre.log").text_content()) > 100)
        self.assertTrue(page.locator(".legend").first.text_content())
        page.goto(self.endpoint()["rest"] + "/#/jobs/default/none")
        page.get_by_text("There is no job none").wait_for()
        self.assertEqual([fault for fault in self.faults if "404" not in fault], [])


if __name__ == "__main__":
    main()
