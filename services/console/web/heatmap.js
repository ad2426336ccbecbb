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

/** What each plan lets be synchronised of every parameter's gradient, against the job's first plan; null: no dropping. */
export function budgetMap(plans) {
  const dropping = plans.filter((plan) => plan.dropping?.kept?.length > 0);
  if (dropping.length === 0) return null;
  const first = dropping[0].dropping.kept;
  const most = Math.max(1, ...dropping.flatMap((plan) => plan.dropping.kept.map((kept, i) => (first[i] > 0 ? kept / first[i] : 0))));
  return tileMatrix("Gradient budgets of parameters, plan by plan", "Layer budgets", dropping.map((plan) => ({
    head: `plan ${plan.generation}`,
    sum: `${number(100 * (plan.dropping.density ?? 0), 0)} % kept`,
    tiles: plan.dropping.kept.map((kept, i) => {
      const ratio = first[i] > 0 ? kept / first[i] : 0;
      return tile(`Plan ${plan.generation}, parameter ${i} in the model's order: ${number(kept)} elements of its gradient are synchronised` +
                  (first[i] > 0 && plan !== dropping[0] ? `, ${ratio.toFixed(2)} times those of plan ${dropping[0].generation}` : ""),
                  kept > 0 ? "part" : "", {share: Math.max(0.08, ratio / most), data: {parameter: String(i), kept: String(kept)}});
    }),
  })));
}
