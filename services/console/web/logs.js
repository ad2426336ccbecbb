// The newest part of one worker's log, followed while it grows.

import * as api from "./api.js";
import {h} from "./dom.js";

const TAIL = 65536;
const MOST_SHOWN = 400000;

export function logView(ns, name, signal) {
  const rank = h("select", {"aria-label": "Rank"});
  const follow = h("input", {type: "checkbox", id: "follow", checked: true});
  const text = h("pre", {class: "log", tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off"}, "");
  const card = h("section", {class: "card", id: "logs"},
                 h("div", {class: "card-head"}, h("h2", {}, "Logs"), h("span", {class: "grow"}),
                   h("label", {}, "Rank ", rank), h("label", {for: "follow"}, follow, " follow")), text);
  let epoch = 0;
  let reader = null;  // AbortController of the log that is read

  async function read(stop) {
    let offset = -TAIL;
    text.textContent = "";
    while (!stop.aborted) {
      try {
        const slice = await api.logs(ns, name, {rank: rank.value, epoch, offset}, stop);
        if (slice.text) {
          text.append(slice.text);
          if (text.textContent.length > MOST_SHOWN) text.textContent = text.textContent.slice(-MOST_SHOWN / 2);
          if (follow.checked) text.scrollTop = text.scrollHeight;
        }
        if (slice.nextOffset) offset = slice.nextOffset;
        if (slice.complete) {
          if (!text.textContent) text.textContent = "This worker wrote nothing.";
          return;
        }
        await api.pause(slice.text ? 200 : 1500, stop);
      } catch (error) {
        if (stop.aborted) return;
        text.textContent = error.message;
        return;
      }
    }
  }

  function start() {
    reader?.abort();
    reader = new AbortController();
    read(reader.signal);
  }
  rank.addEventListener("change", start);
  signal.addEventListener("abort", () => reader?.abort(), {once: true});

  return {card, update(job) {
    const count = job.spec?.workers?.count ?? 1;
    if (rank.length !== count) {
      const chosen = rank.value;
      rank.replaceChildren(...Array.from({length: count}, (_, i) => h("option", {value: String(i)}, String(i))));
      if (chosen && Number(chosen) < count) rank.value = chosen;
    }
    const now = job.status?.epoch ?? 0;
    if (now === epoch && reader !== null) return;
    epoch = now;
    if (epoch > 0) start();
    else text.textContent = "No worker was started yet.";
  }};
}
