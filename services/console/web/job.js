// One job: live by the watch stream, and as it was left after the end.

import * as api from "./api.js";
import {chart} from "./charts.js";
import {checkpointsTable} from "./checkpoints.js";
import {ago, askedNumber, bytes, clock, confirmed, duration, h, loss, notice, number, secondsOf, stateChip} from "./dom.js";
import {budgetMap, heatmap} from "./heatmap.js";
import {logView} from "./logs.js";

const ENDED = new Set(["succeeded", "failed", "cancelled"]);

function tile(label) {
  const value = h("dd", {}, "–");
  const small = h("dd", {class: "small"});
  return {card: h("div", {class: "tile"}, h("dt", {}, label), value, small), set(text, more = "") {
    value.textContent = text;
    small.textContent = more;
  }};
}

function head(ns, name, onError, explained) {
  const chip = h("span");
  const message = h("p", {class: "message"});
  const bar = h("div", {class: "track", role: "progressbar", "aria-label": "Steps", "aria-valuemin": "0"}, h("i"));
  const steps = h("span", {class: "n"});
  const eta = h("span", {class: "n"});
  const act = (label, verb, ask) => h("button", {type: "button", class: verb === "cancel" ? "danger" : "", "data-verb": verb,
    onclick: async (event) => {
      const button = event.target;
      if (ask && !(await confirmed(`${label} ${name}?`, ask, `${label} the job`))) return;
      button.disabled = true;
      try {
        if (verb === "delete") {
          await api.remove(ns, name);
          location.hash = "#/";
        } else {
          const answer = await api.act(ns, name, verb);
          if (verb === "explain") explained(answer);
        }
      } catch (error) {
        onError(error);
      }
      button.disabled = false;
    }}, label);
  let workers = 1;
  async function resize(event) {
    const button = event.target;
    const asked = await askedNumber(`Resize ${name}?`, "Its workers write a checkpoint and stop. The job is planned anew for so many, and goes on from there.",
                                    "Workers", workers, "Resize the job");
    if (asked === null || asked === workers) return;
    button.disabled = true;
    try {
      await api.act(ns, name, "resize", {workers: asked});
    } catch (error) {
      onError(error);
    }
    button.disabled = false;
  }
  const buttons = {
    explain: act("Explain", "explain"),
    resize: h("button", {type: "button", "data-verb": "resize", onclick: resize}, "Resize"),
    suspend: act("Suspend", "suspend"),
    resume: act("Resume", "resume"),
    cancel: act("Cancel", "cancel", "Its workers write a checkpoint and stop. The job can't be resumed afterwards."),
    delete: act("Delete", "delete", "Its record, logs and checkpoints in the state directory go with it."),
  };
  const card = h("div", {},
                 h("div", {class: "head"}, h("h1", {}, name), chip, h("span", {class: "grow"}), Object.values(buttons)),
                 message, h("div", {class: "progress"}, bar, steps, eta));
  return {card, update(job) {
    const {status = {}, spec = {}} = job;
    const ended = ENDED.has(status.state);
    chip.replaceChildren(stateChip(status.state));
    const same = status.reason?.toLowerCase() === status.message?.toLowerCase();
    message.textContent = (same ? [status.reason] : [status.reason, status.message]).filter(Boolean).join(": ");
    message.className = `message ${status.state === "failed" ? "wrong" : ""}`;
    const total = status.totalSteps ?? 0;
    bar.setAttribute("aria-valuemax", String(total));
    bar.setAttribute("aria-valuenow", String(status.step ?? 0));
    bar.firstChild.style.width = `${total > 0 ? Math.min(100, (100 * (status.step ?? 0)) / total) : 0}%`;
    steps.textContent = `step ${number(status.step)} of ${number(total)}`;
    eta.textContent = ended ? `ended ${ago(status.endTime)}`
                            : status.eta ? `${duration(secondsOf(status.eta))} left` : "";
    const stopping = status.cancelRequested;
    workers = spec.workers?.count ?? 1;
    buttons.resize.hidden = ended || stopping;
    buttons.suspend.hidden = ended || spec.suspend || stopping;
    buttons.resume.hidden = ended || !spec.suspend || stopping;
    buttons.cancel.hidden = ended || stopping;
    buttons.delete.hidden = !ended;
  }};
}

/** A bar of the measured against the predicted value; `most` is the scale's end. */
function meter(measured, predicted, most) {
  const fill = h("i");
  const mark = h("b");
  fill.style.width = `${Math.min(100, (100 * (measured ?? 0)) / most)}%`;
  mark.style.left = `${Math.min(100, (100 * (predicted ?? 0)) / most)}%`;
  const over = (measured ?? 0) > 1.02 * (predicted ?? Infinity);
  return h("span", {class: `meter against ${over ? "over" : ""}`, "aria-hidden": "true"}, fill, predicted && mark);
}

function workersTable(workers) {
  const most = Math.max(1, ...workers.map((w) => Math.max(w.memoryPeakBytes ?? 0, w.memoryPredictedBytes ?? 0))) * 1.05;
  const mostSent = Math.max(1, ...workers.map((w) => Math.max(w.trafficBytesPerStep ?? 0, w.trafficPredictedBytesPerStep ?? 0))) * 1.05;
  const rows = workers.map((w) => h("tr", {},
    h("th", {scope: "row"}, String(w.rank ?? 0)),
    h("td", {}, w.state || "–", w.lastError && h("small", {class: "wrong"}, ` ${w.lastError}`)),
    h("td", {class: "n"}, number(w.step)),
    h("td", {class: "n"}, `${number(100 * (w.coverage ?? 0))} %`),
    h("td", {class: "against-cell"}, meter(w.memoryPeakBytes, w.memoryPredictedBytes, most),
      h("span", {class: "n"}, `${bytes(w.memoryPeakBytes)} / ${bytes(w.memoryPredictedBytes)}`)),
    h("td", {class: "against-cell"}, meter(w.trafficBytesPerStep, w.trafficPredictedBytesPerStep, mostSent),
      h("span", {class: "n"}, `${bytes(w.trafficBytesPerStep)} / ${bytes(w.trafficPredictedBytesPerStep)}`)),
    h("td", {class: "n"}, w.computeSeconds ? `${number(1000 * w.computeSeconds)} ms` : "–"),
    h("td", {}, w.node || "–")));
  return h("div", {class: "scroll", role: "region", "aria-label": "Workers", tabindex: "0"}, h("table", {class: "workers"},
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Rank"), h("th", {scope: "col"}, "State"), h("th", {scope: "col", class: "n"}, "Step"),
      h("th", {scope: "col", class: "n"}, "Holds"), h("th", {scope: "col"}, "Memory: peak / predicted"),
      h("th", {scope: "col"}, "Sent per step: measured / predicted"), h("th", {scope: "col", class: "n"}, "Compute"), h("th", {scope: "col"}, "Node"))),
    h("tbody", {}, rows)));
}

function plansTable(plans) {
  const largest = (plan) => Math.max(0, ...(plan.workers ?? []).map((w) => w.memory?.peak ?? 0));
  const sent = (plan) => Math.max(0, ...(plan.workers ?? []).map((w) => w.trafficBytesPerStep ?? 0));
  const ddp = plans.at(-1)?.alternatives?.find((other) => other.name === "ddp");
  const rows = [...plans].reverse().map((plan) => h("tr", {},
    h("th", {scope: "row"}, String(plan.generation ?? "–")), h("td", {}, plan.reason || "–"),
    h("td", {class: "n"}, number(plan.workers?.length)), h("td", {class: "n"}, `${number(100 * (plan.inputs?.coverage ?? 0))} %`),
    h("td", {class: "n"}, bytes(largest(plan))), h("td", {class: "n"}, bytes(sent(plan))),
    h("td", {class: "n"}, number(plan.spectralGap, 3)), h("td", {class: "n"}, clock(plan.createTime))));
  return h("div", {}, h("div", {class: "scroll", role: "region", "aria-label": "Plans", tabindex: "0"}, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Plan"), h("th", {scope: "col"}, "Reason"), h("th", {scope: "col", class: "n"}, "Workers"),
      h("th", {scope: "col", class: "n"}, "Coverage"), h("th", {scope: "col", class: "n"}, "Largest worker"), h("th", {scope: "col", class: "n"}, "Sent per step"),
      h("th", {scope: "col", class: "n"}, "Spectral gap"), h("th", {scope: "col", class: "n"}, "Made"))), h("tbody", {}, rows))),
    ddp && h("p", {class: "hint"}, `Plain data parallelism would need ${bytes(ddp.memoryBytes)} per worker and send ${bytes(ddp.trafficBytesPerStep)} per step.`));
}

function eventsList(events) {
  if (events.length === 0) return h("p", {class: "hint"}, "Nothing happened yet.");
  return h("ol", {class: "events"}, events.slice(-200).reverse().map((event) =>
    h("li", {class: event.type === "Warning" ? "warning" : ""}, h("time", {datetime: event.time}, clock(event.time)),
      h("strong", {}, event.reason), h("span", {}, event.message))));
}

const section = (title, body, id, aside) =>
  h("section", {class: "card", id, tabindex: "-1"}, h("div", {class: "card-head"}, h("h2", {}, title), aside), body);
const heatKey = () => h("div", {class: "heat-key"}, [["held", "held"], ["", "not held"], ["always", "always on"]].map(
  ([kind, label]) => h("span", {}, h("i", {class: kind, "aria-hidden": "true"}), label)));

export function jobPage(main, ns, name, signal, showLink) {
  const toast = h("div", {role: "alert", class: "toast", hidden: true});
  const onError = (error) => {
    toast.textContent = error.message;
    toast.hidden = false;
    setTimeout(() => (toast.hidden = true), 8000);
  };
  const reasons = h("div");
  const why = section("Why it is as it is", reasons, "why");
  why.hidden = true;
  const top = head(ns, name, onError, (answer) => {
    reasons.replaceChildren(h("p", {}, answer.summary), h("ul", {class: "reasons"}, (answer.reasons ?? []).map((text) => h("li", {}, text))));
    why.hidden = false;
    why.focus();
  });
  const tiles = Object.fromEntries([["loss", "Training loss"], ["validation", "Validation loss"], ["speed", "Throughput"],
                                    ["step", "Step time"], ["memory", "Largest peak memory"], ["plan", "Plan"]].map(([key, label]) => [key, tile(label)]));
  const curves = chart("Loss", [{label: "training", color: "series-1"}, {label: "validation", color: "series-2", points: true}], {digits: 4});
  const times = chart("Step time", [{label: "step", color: "series-1"}, {label: "compute", color: "series-3"}, {label: "waiting for peers", color: "series-2"}],
                      {digits: 0, unit: " ms"});
  const map = h("div", {}, h("p", {class: "hint"}, "Loading the plan…"));
  const budgets = h("div");
  const budgetCard = section("Layer budgets: plans × parameters", budgets, "budgets");
  budgetCard.hidden = true;
  const workers = h("div");
  const plans = h("div");
  const checkpoints = h("div");
  const events = h("div");
  const logs = logView(ns, name, signal);
  const page = h("div", {class: "job", hidden: true}, top.card, why, h("dl", {class: "tiles"}, Object.values(tiles).map((one) => one.card)),
                 h("div", {class: "pair"}, curves.card, times.card),
                 section("Mask plan: workers × units", map, "mask", heatKey()), budgetCard, section("Workers", workers, "workers"),
                 section("Plan history", plans, "plans"), section("Checkpoints", checkpoints, "checkpoints"),
                 h("div", {class: "pair"}, section("Events", events, "events"), logs.card), toast);
  const place = h("div", {}, notice("loading", `Loading ${name}…`));
  main.replaceChildren(place, page);
  signal.addEventListener("abort", () => (curves.end(), times.end()), {once: true});

  const points = new Map();  // by step; an evaluation completes its step's point
  let lastStep = 0;
  let epoch = -1;
  let generation = -1;
  let asked = false;
  let latest = null;

  function draw() {
    const xs = [...points.keys()].sort((a, b) => a - b);
    const column = (read) => xs.map((x) => {
      const value = read(points.get(x));
      return typeof value === "number" ? value : null;
    });
    curves.update(xs, [column((p) => p.loss), column((p) => p.validationLoss)]);
    const steps = xs.filter((x) => points.get(x).stepSeconds !== undefined);
    const milliseconds = (key) => steps.map((x) => 1000 * (points.get(x)[key] ?? 0));
    times.update(steps, [milliseconds("stepSeconds"), milliseconds("computeSeconds"), milliseconds("syncSeconds")]);
  }

  // What the stream does not carry, at most once a second while something changes.
  async function refresh() {
    if (asked) return;
    asked = true;
    while (asked && !signal.aborted) {
      asked = false;
      const job = latest;
      try {
        if ((job.status?.epoch ?? 0) !== epoch) {  // a restart takes steps back
          epoch = job.status?.epoch ?? 0;
          points.clear();
          lastStep = 0;
        }
        const fresh = await api.metrics(ns, name, {afterStep: lastStep, maxPoints: 2000}, signal);
        for (const point of fresh.points ?? []) points.set(point.step ?? 0, {...points.get(point.step ?? 0), ...point});
        // An evaluation is written after its step: ask again from the one before.
        lastStep = Math.max(0, (fresh.lastStep ?? 0) - 1);
        draw();
        if ((job.status?.planGeneration ?? 0) !== generation) {
          const all = (await api.plans(ns, name, signal)).plans ?? [];
          generation = job.status?.planGeneration ?? 0;
          const plan = all.find((one) => one.generation === generation) ?? all.at(-1);
          map.replaceChildren(plan ? heatmap(plan) : h("p", {class: "hint"}, "There is no plan yet."));
          const layers = budgetMap(all);
          budgetCard.hidden = layers === null;
          budgets.replaceChildren(...(layers ? [layers] : []));
          plans.replaceChildren(all.length ? plansTable(all) : h("p", {class: "hint"}, "There is no plan yet."));
        }
        checkpoints.replaceChildren(checkpointsTable((await api.checkpoints(ns, name, signal)).checkpoints ?? []));
        events.replaceChildren(eventsList(await api.events(ns, name, signal)));
      } catch (error) {
        if (!signal.aborted) onError(error);
      }
      await api.pause(1000, signal);
    }
  }

  function update(job) {
    latest = job;
    place.replaceChildren();
    page.hidden = false;
    const {status = {}} = job;
    top.update(job);
    tiles.loss.set(loss(status.loss), status.learningRate ? `learning rate ${status.learningRate.toExponential(2)}` : "");
    tiles.validation.set(loss(status.validationLoss), status.initialValidationLoss ? `untrained ${loss(status.initialValidationLoss)}` : "");
    tiles.speed.set(status.tokensPerSecond ? `${number(status.tokensPerSecond)} tok/s` : "–", status.tokens ? `${number(status.tokens)} tokens` : "");
    tiles.step.set(status.stepSeconds ? `${number(1000 * status.stepSeconds)} ms` : "–", status.epoch ? `epoch ${status.epoch}, ${status.restarts ?? 0} restarts` : "");
    const peaks = (status.workers ?? []).map((w) => [w.memoryPeakBytes ?? 0, w.memoryPredictedBytes ?? 0]);
    tiles.memory.set(bytes(Math.max(0, ...peaks.map((p) => p[0]))), `predicted ${bytes(Math.max(0, ...peaks.map((p) => p[1])))}`);
    tiles.plan.set(status.planGeneration ? `#${status.planGeneration}` : "–", `${(status.workers ?? []).length} workers`);
    workers.replaceChildren(workersTable(status.workers ?? []));
    logs.update(job);
    if (ENDED.has(status.state)) showLink("ended");
    asked = false;
    refreshSoon();
  }

  let running = false;
  async function refreshSoon() {
    if (running) {
      asked = true;
      return;
    }
    running = true;
    await refresh();
    running = false;
  }

  api.watch(ns, name, {
    update,
    link: (state) => showLink(ENDED.has(latest?.status?.state) ? "ended" : state),
    deleted: () => {
      page.hidden = true;
      place.replaceChildren(notice("empty", `There is no job ${name}`, "It was deleted, or never was.", h("a", {href: "#/"}, "To the jobs")));
    },
    error: (error) => {
      page.hidden = true;
      place.replaceChildren(notice("error", "The job can't be shown", error.message));
    },
  }, signal);
}
