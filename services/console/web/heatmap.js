// The mask plan, workers down and units across: a filled tile is held. And the budgets of layers, plan by plan.

import {number} from "./dom.js";
import {tile, tileMatrix} from "./tiles.js";

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
  const holders = (column) => (column.always ? "all workers, always on"
                                             : `workers ${[...column.held.keys()].sort((a, b) => a - b).join(", ")}`);
  const rows = [];
  for (let rank = 0; rank < ranks; ++rank) {
    const worker = plan.workers[rank];
    rows.push({
      head: String(worker.rank ?? rank), sum: `${number(100 * (worker.coverage ?? 0), 0)} %`,
      tiles: columns.map((column) => {
        const share = column.always && column.held.size === 0 ? 1 : column.held.get(rank) ?? 0;
        const kind = share === 0 ? "" : column.always ? "always" : share < 1 ? "part" : "held";
        return tile(`Worker ${rank} ${share > 0 ? "holds" : "does not hold"} ${column.name}: ${number(column.elements)} elements, ` +
                    `held by ${holders(column)}`, kind,
                    {share, data: {unit: column.name, rank: String(rank), held: share > 0 ? "1" : "0"}});
      }),
    });
  }
  return tileMatrix("Which worker holds which unit", "Mask plan", rows);
}

/** What each plan lets be synchronised of every parameter's gradient; null: no dropping. */
export function budgetMap(plans) {
  const dropping = plans.filter((plan) => plan.dropping?.kept?.length > 0);
  if (dropping.length === 0) return null;
  return tileMatrix("Gradient budgets of parameters, plan by plan", "Layer budgets", dropping.map(({generation, dropping: budgets}) => ({
    head: `plan ${generation}`,
    sum: `${number(100 * (budgets.density ?? 0), 0)} % of all`,
    tiles: budgets.kept.map((kept, i) => {
      const name = budgets.parameters?.[i] ?? `parameter ${i}`;
      const elements = budgets.elements?.[i] ?? 0;
      const share = elements > 0 ? kept / elements : 1;
      return tile(`Plan ${generation} synchronises ${elements > 0 ? `${number(100 * share, share < 0.1 ? 1 : 0)} % of ` : ""}${name}: ` +
                  `${number(kept)}${elements > 0 ? ` of ${number(elements)}` : ""} elements`,
                  kept > 0 ? "part" : "", {share: Math.max(0.08, share), data: {parameter: name, kept: String(kept)}});
    }),
  })));
}
