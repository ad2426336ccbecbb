// What of a job's run can be gone on from.

import {bytes, clock, h, number} from "./dom.js";

const MOST_SHOWN = 20;

/** `checkpoints` are complete, oldest first. */
export function checkpointsTable(checkpoints) {
  if (checkpoints.length === 0) return h("p", {class: "hint"}, "None was written yet.");
  const shown = checkpoints.slice(-MOST_SHOWN).reverse();
  const rows = shown.map((one) => h("tr", {}, h("th", {scope: "row", class: "n"}, number(one.step)), h("td", {}, h("code", {}, one.path)),
    h("td", {class: "n"}, number(one.workers)), h("td", {class: "n"}, bytes(one.bytes)), h("td", {class: "n"}, clock(one.createTime))));
  return h("div", {class: "scroll", role: "region", "aria-label": "Checkpoints", tabindex: "0"}, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {scope: "col", class: "n"}, "Step"), h("th", {scope: "col"}, "Folder"),
      h("th", {scope: "col", class: "n"}, "Workers"), h("th", {scope: "col", class: "n"}, "Size"), h("th", {scope: "col", class: "n"}, "Written"))), h("tbody", {}, rows)));
}
