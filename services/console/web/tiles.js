// A matrix of tiles that is read by pointing, or by arrow keys: one tile at a time is in the tab order.

import {h} from "./dom.js";

/** A tile: `label` is what is read of it, `kind` its look, `share` (0 to 1) its shade where the look is "part". */
export function tile(label, kind, {share, data = {}} = {}) {
  const element = h("td", {class: `tile-cell ${kind}`, tabindex: "-1", "aria-label": label});
  Object.assign(element.dataset, data);
  if (kind === "part") element.style.setProperty("--share", String(share));
  return element;
}

/** `rows`: [{head, tiles, sum?}]. `title` names the matrix, `region` what scrolls sideways around it. */
export function tileMatrix(title, region, rows) {
  const reading = h("p", {class: "hint", role: "status"}, "Point at a tile, or move through them with the arrow keys.");
  const table = h("table", {class: "heat", "aria-label": title}, h("tbody", {}, rows.map((row) =>
    h("tr", {}, h("th", {scope: "row"}, row.head), row.tiles, row.sum && h("td", {class: "sum"}, row.sum)))));
  const first = table.querySelector(".tile-cell");
  if (first) first.tabIndex = 0;
  const at = (target) => target.closest?.(".tile-cell");
  const say = ({target}) => at(target) && (reading.textContent = at(target).getAttribute("aria-label"));
  table.addEventListener("pointerover", say);
  table.addEventListener("focusin", say);
  table.addEventListener("keydown", (event) => {
    const move = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const from = at(event.target);
    if (!move || !from) return;
    event.preventDefault();
    const to = table.rows[from.parentElement.rowIndex + move[0]]?.cells[from.cellIndex + move[1]];
    if (!to?.matches(".tile-cell")) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
  return h("div", {}, h("div", {class: "heat-scroll", role: "region", "aria-label": region, tabindex: "0"}, table), reading);
}
