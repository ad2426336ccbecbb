// The machines, and a matrix of the measured links between them, asked for again every ten seconds.

import * as api from "./api.js";
import {bytes, duration, h, notice, number, secondsOf} from "./dom.js";

const MOST_NODES = 60;  // of the matrix: beyond it the links are in `tessera links`

const age = (profile) => (profile.age === undefined ? "–" : `${duration(secondsOf(profile.age))}${profile.stale ? ", stale" : ""}`);
const ratio = (device) => (device.largestBlockBytes ? `${number(100 * (device.fragmentationRatio ?? 0))} %` : "–");

function nodeRows(node) {
  const devices = (node.devices ?? [{name: "unknown"}]).map((device) => h("tr", {class: node.stale ? "stale" : ""},
    h("td", {}, node.name), h("td", {}, device.model || device.name), h("td", {class: "n wide"}, device.cores ? number(device.cores) : "–"),
    h("td", {class: "n"}, bytes(device.totalBytes)), h("td", {class: "n"}, bytes(device.freeBytes)),
    h("td", {class: "n wide"}, ratio(device)), h("td", {class: "n"}, age(node))));
  const workers = (node.workers ?? []).map(({namespace = "default", job, rank = 0, device = {}}) => h("tr", {class: "worker"},
    h("td", {}, h("a", {href: `#/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(job)}`}, `${job} / ${rank}`)),
    h("td", {}, "worker"), h("td", {class: "n wide"}), h("td", {class: "n"}, bytes(device.reservedBytes)),
    h("td", {class: "n"}), h("td", {class: "n wide"}, `${number(100 * (device.fragmentationRatio ?? 0))} %`), h("td", {class: "n"})));
  return [...devices, ...workers];
}

const milliseconds = (seconds) => (seconds ? `${number(1000 * seconds, seconds < 0.01 ? 2 : 0)} ms` : "unknown");
const rate = (value) => (value ? `${bytes(value)}/s` : "unknown");

// Each measurement fills both directions. Shade: the logarithm of the rate, from the slowest to the fastest.
function matrixOf(names, links) {
  const cells = new Map();
  const put = (from, to, link, bandwidth) => cells.set(`${from}\n${to}`, {link, bandwidth: bandwidth ?? 0});
  for (const link of links) {
    put(link.node, link.peer, link, link.bandwidthBytesPerSecond);
    put(link.peer, link.node, link, link.receiveBandwidthBytesPerSecond);
  }
  const known = [...cells.values()].map((cell) => cell.bandwidth).filter((value) => value > 0).map(Math.log);
  const low = Math.min(...known), high = Math.max(...known);
  const reading = h("p", {class: "hint", role: "status"}, "Point at a tile, or move through them with the arrow keys.");
  const rows = names.map((from, i) => h("tr", {}, h("th", {scope: "row"}, from), names.map((to, j) => {
    const cell = cells.get(`${from}\n${to}`);
    const text = from === to ? `${from} itself` : !cell ? `${from} to ${to}: not measured` :
      `${from} to ${to}: ${rate(cell.bandwidth)}, round trip ${milliseconds(cell.link.roundTripSeconds)} ` +
      `(least ${milliseconds(cell.link.leastRoundTripSeconds)}), ${age(cell.link)}${cell.link.error ? `; ${cell.link.error}` : ""}`;
    const kind = !cell || !cell.bandwidth ? "" : cell.link.stale ? "always" : "part";
    const tile = h("td", {class: kind, tabindex: i === 0 && j === 0 ? "0" : "-1", "data-unit": text, "aria-label": text,
                          "data-link": cell ? "1" : "0"});
    if (kind === "part") {
      tile.style.setProperty("--share", String(high > low ? 0.25 + 0.75 * (Math.log(cell.bandwidth) - low) / (high - low) : 1));
    }
    return tile;
  })));
  const table = h("table", {class: "heat", "aria-label": "Bandwidth from the node of the row to that of the column"}, h("tbody", {}, rows));
  const say = (tile) => tile?.dataset?.unit && (reading.textContent = tile.dataset.unit);
  table.addEventListener("pointerover", (event) => say(event.target));
  table.addEventListener("focusin", (event) => say(event.target));
  table.addEventListener("keydown", (event) => {
    const move = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const from = event.target.closest("td[data-unit]");
    if (!move || !from) return;
    event.preventDefault();
    const to = table.rows[from.parentElement.rowIndex + move[0]]?.cells[from.cellIndex + move[1]];
    if (!to?.dataset.unit) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
  return h("div", {}, h("div", {class: "heat-scroll", role: "region", "aria-label": "Links", tabindex: "0"}, table), reading);
}

export function nodesPage(main, signal) {
  const body = h("tbody");
  const table = h("table", {}, h("caption", {class: "hidden"}, "Machines"),
                  h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Node"), h("th", {scope: "col"}, "Device"),
                    h("th", {scope: "col", class: "n wide"}, "Cores"), h("th", {scope: "col", class: "n"}, "Total"),
                    h("th", {scope: "col", class: "n"}, "Free"), h("th", {scope: "col", class: "n wide"}, "Fragmented"),
                    h("th", {scope: "col", class: "n"}, "Age"))), body);
  const place = h("div", {}, notice("loading", "Loading links…"));
  main.append(h("h1", {class: "above"}, "Nodes"), h("section", {class: "card flush"}, table),
              h("h2", {class: "above"}, "Links"), h("section", {class: "card", "aria-label": "Links between nodes"}, place));
  let shown = "";

  async function load() {
    try {
      const [{nodes = []}, {links = []}] = await Promise.all([api.nodes(signal), api.links(signal)]);
      body.replaceChildren(...nodes.flatMap(nodeRows));
      const text = JSON.stringify(links.map(({age: _, confidence: __, ...link}) => link));
      if (text === shown) return;
      shown = text;
      const names = [...new Set(links.flatMap((link) => [link.node, link.peer]))].sort();
      if (links.length === 0) {
        place.replaceChildren(notice("empty", "No links have been measured", "",
                                     h("p", {}, "That takes two nodes that run ", h("code", {}, "tessera-agent run"), ".")));
      } else if (names.length > MOST_NODES) {
        place.replaceChildren(notice("empty", `${number(names.length)} nodes are too many to draw`, "",
                                     h("p", {}, h("code", {}, "tessera links"), " lists their links.")));
      } else {
        place.replaceChildren(matrixOf(names, links));
      }
    } catch (error) {
      if (signal.aborted) return;
      place.replaceChildren(notice("error", "The nodes can't be shown", error.message,
                                   h("button", {type: "button", onclick: load}, "Try again")));
    }
  }
  (async () => {
    while (!signal.aborted) {
      if (document.visibilityState === "visible") await load();
      await api.pause(10000, signal);
    }
  })();
}
