// All jobs, asked for again every two seconds while the page is looked at.

import * as api from "./api.js";
import {ago, h, loss, notice, number, stateChip} from "./dom.js";

const MASK = "name,namespace,create_time,spec.model.preset,spec.workers.count,status.state,status.message,status.step," +
             "status.total_steps,status.loss,status.validation_loss";
const STATES = ["running", "queued", "starting", "suspended", "succeeded", "failed", "cancelled"];
const LIVE = new Set(["planned", "starting", "warmup", "running", "replanning", "degraded"]);

function row(job) {
  const {status = {}} = job;
  const ns = job.namespace ?? "default";
  const total = status.totalSteps ?? 0;
  const share = total > 0 ? Math.min(1, (status.step ?? 0) / total) : 0;
  const fill = h("i");
  fill.style.width = `${100 * share}%`;
  return h("tr", {class: LIVE.has(status.state) ? "live" : ""},
           h("td", {}, h("a", {class: "name", href: `#/jobs/${encodeURIComponent(ns)}/${encodeURIComponent(job.name)}`}, job.name),
             ns !== "default" && h("small", {}, ` ${ns}`)),
           h("td", {}, stateChip(status.state)),
           h("td", {class: "progress-cell"}, h("span", {class: "meter", "aria-hidden": "true"}, fill),
             h("span", {class: "n"}, `${number(status.step)} / ${number(total)}`)),
           h("td", {class: "n wide"}, loss(status.loss)),
           h("td", {class: "n wide"}, loss(status.validationLoss)),
           h("td", {class: "n wide"}, number(job.spec?.workers?.count)),
           h("td", {class: "wide"}, job.spec?.model?.preset ?? "–"),
           h("td", {class: "n"}, ago(job.createTime)));
}

export function listPage(main, signal) {
  const search = h("input", {type: "search", placeholder: "Name  ( / )", "aria-label": "Names that contain", spellcheck: "false"});
  const state = h("select", {"aria-label": "State"}, h("option", {value: ""}, "All states"),
                  STATES.map((name) => h("option", {value: name}, name)));
  const count = h("span", {class: "count", role: "status"});
  const body = h("tbody");
  const table = h("table", {class: "jobs", hidden: true},
                  h("caption", {class: "hidden"}, "Training jobs"),
                  h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Job"), h("th", {scope: "col"}, "State"),
                    h("th", {scope: "col"}, "Progress"), h("th", {scope: "col", class: "n wide"}, "Loss"),
                    h("th", {scope: "col", class: "n wide"}, "Validation"), h("th", {scope: "col", class: "n wide"}, "Workers"),
                    h("th", {scope: "col", class: "wide"}, "Model"), h("th", {scope: "col", class: "n"}, "Created"))), body);
  const place = h("div", {}, notice("loading", "Loading jobs…"));
  const more = h("button", {type: "button", class: "quiet", hidden: true, onclick: () => {
    size += 100;
    load();
  }}, "Show more");
  main.replaceChildren(h("div", {class: "head"}, h("h1", {}, "Jobs"), count, h("span", {class: "grow"}), search, state),
                       h("section", {class: "card flush"}, table, place), more);
  let size = 100;
  let shown = "";

  async function load() {
    const terms = [];
    if (search.value.trim()) terms.push(`name:"${search.value.trim().replace(/["\\]/g, "")}"`);
    if (state.value) terms.push(`status.state=${state.value}`);
    try {
      const page = await api.listJobs({pageSize: Math.min(size, 1000), readMask: MASK, filter: terms.join(" AND ")}, signal);
      const jobs = (page.trainingJobs ?? []).sort((a, b) => (b.createTime ?? "").localeCompare(a.createTime ?? ""));
      more.hidden = !page.nextPageToken || size >= 1000;
      count.textContent = `${number(jobs.length)}${page.nextPageToken ? "+" : ""}`;
      table.hidden = jobs.length === 0;
      if (jobs.length > 0) {
        place.replaceChildren();
      } else if (terms.length > 0) {
        place.replaceChildren(notice("empty", "No job matches", "Change the name or the state above."));
      } else {
        place.replaceChildren(notice("empty", "No jobs yet", "",
                                     h("p", {}, "Start one with ", h("code", {}, "tessera train deploy/recipes/quickstart.yaml"), ".")));
      }
      const text = JSON.stringify(jobs);
      if (text === shown && jobs.length > 0 && jobs.every((job) => !LIVE.has(job.status?.state))) return;
      shown = text;
      const focused = document.activeElement?.closest?.("tr") ? document.activeElement.getAttribute("href") : null;
      body.replaceChildren(...jobs.map(row));
      if (focused) body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    } catch (error) {
      if (signal.aborted) return;
      table.hidden = true;
      place.replaceChildren(notice("error", "The jobs can't be shown", error.message,
                                   h("button", {type: "button", onclick: load}, "Try again")));
    }
  }

  let typing;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(load, 200);
  });
  state.addEventListener("change", load);
  (async () => {
    while (!signal.aborted) {
      if (document.visibilityState === "visible") await load();
      await api.pause(2000, signal);
    }
  })();
}
