// The machines, and a matrix of the measured links between them, asked for again every ten seconds.

import * as api from "./api.js";
import {bytes, duration, h, notice, number, secondsOf} from "./dom.js";
import {tile, tileMatrix} from "./tiles.js";

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
  return tileMatrix("Bandwidth from the node of the row to that of the column", "Links", names.map((from) => ({
    head: from,
    tiles: names.map((to) => {
      const cell = cells.get(`${from}\n${to}`);
      if (from === to) return tile(`${from} itself`, "self");
      if (!cell) return tile(`${from} to ${to}: not measured`, "");
      const {link} = cell;
      const label = `${from} to ${to}: ${rate(cell.bandwidth)}, round trip ${milliseconds(link.roundTripSeconds)} ` +
                    `(least ${milliseconds(link.leastRoundTripSeconds)}), ${age(link)}${link.error ? `; ${link.error}` : ""}`;
      const share = high > low ? 0.25 + 0.75 * (Math.log(cell.bandwidth) - low) / (high - low) : 1;
      return tile(label, !cell.bandwidth ? "" : link.stale ? "always" : "part", {share, data: {link: "1"}});
    }),
  })));
}

const linkKey = () => h("div", {class: "heat-key"}, [["held", "fast"], ["slow", "slow"], ["always", "stale"], ["", "not measured"]].map(
  ([kind, label]) => h("span", {}, h("i", {class: kind, "aria-hidden": "true"}), label)));

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
        place.replaceChildren(linkKey(), matrixOf(names, links));
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
