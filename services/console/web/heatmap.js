// The mask plan: workers down, units across; a filled tile is held.

import {h, number} from "./dom.js";

const MOST_TILES = 12000;  // beyond it units of one block are drawn as one tile of their mean share

function columnsOf(plan, ranks) {
  const units = plan.units ?? [];
  const single = units.map((unit) => ({
    name: unit.name, always: Boolean(unit.alwaysOn), elements: unit.elements ?? 0,
    held: new Map((unit.holders ?? []).map((rank) => [rank, 1])),
  }));
  if (units.length * ranks <= MOST_TILES) return single;
  const blocks = new Map();
  units.forEach((unit, i) => {
    const key = unit.alwaysOn ? -1 : unit.block ?? 0;
    const block = blocks.get(key) ?? {name: key < 0 ? "always on" : `block ${key}`, always: key < 0, elements: 0, held: new Map()};
    block.elements += single[i].elements;
    for (const rank of single[i].held.keys()) block.held.set(rank, (block.held.get(rank) ?? 0) + single[i].elements);
    blocks.set(key, block);
  });
  for (const block of blocks.values()) {
    for (const [rank, elements] of block.held) block.held.set(rank, elements / block.elements);
  }
  return [...blocks.values()];
}

export function heatmap(plan) {
  const ranks = plan.workers?.length ?? 0;
  const columns = columnsOf(plan, ranks);
  const reading = h("p", {class: "hint", role: "status"}, "Point at a tile, or move through them with the arrow keys.");
  const rows = [];
  for (let rank = 0; rank < ranks; ++rank) {
    const tiles = columns.map((column, i) => {
      const share = column.always && column.held.size === 0 ? 1 : column.held.get(rank) ?? 0;
      const kind = share === 0 ? "" : column.always ? "always" : share < 1 ? "part" : "held";
      const tile = h("td", {class: kind, tabindex: rank === 0 && i === 0 ? "0" : "-1", "data-unit": column.name,
                            "data-rank": String(rank), "data-held": share > 0 ? "1" : "0",
                            "aria-label": `worker ${rank}, ${column.name}: ${share > 0 ? "held" : "not held"}`});
      if (kind === "part") tile.style.setProperty("--share", String(share));
      return tile;
    });
    const worker = plan.workers[rank];
    rows.push(h("tr", {}, h("th", {scope: "row"}, String(worker.rank ?? rank)), tiles,
                h("td", {class: "sum"}, `${number(100 * (worker.coverage ?? 0), 0)} %`)));
  }
  const table = h("table", {class: "heat", "aria-label": "Which worker holds which unit"}, h("tbody", {}, rows));
  const say = (tile) => {
    if (!tile?.dataset?.unit) return;
    const column = columns[tile.cellIndex - 1];
    const holders = column.always ? "all workers, always on" : `workers ${[...column.held.keys()].sort((a, b) => a - b).join(", ")}`;
    reading.textContent = `${column.name}: ${number(column.elements)} elements, held by ${holders}`;
  };
  table.addEventListener("pointerover", (event) => say(event.target));
  table.addEventListener("focusin", (event) => say(event.target));
  table.addEventListener("keydown", (event) => {
    const move = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const from = event.target.closest("td[data-unit]");
    if (!move || !from) return;
    event.preventDefault();
    const row = from.parentElement.parentElement.rows[from.parentElement.rowIndex + move[0]];
    const to = row?.cells[from.cellIndex + move[1]];
    if (!to?.dataset.unit) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
  return h("div", {}, h("div", {class: "heat-scroll", role: "region", "aria-label": "Mask plan", tabindex: "0"}, table), reading);
}
