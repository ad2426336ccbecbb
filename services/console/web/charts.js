// Curves by uPlot, in the page's own colours.

import {h} from "./dom.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const font = "12px system-ui, sans-serif";

/**
 * A card with a plot. `series`: [{label, color (css variable), points?, dash?, value(v)}]. `update(xs, columns)` takes
 * the steps and one array per series (null where it has none).
 */
export function chart(title, series, {digits = 3, unit = ""} = {}) {
  const place = h("div", {class: "plot"});
  const table = h("p", {class: "hidden"});
  const empty = h("p", {class: "hint center"}, "No steps yet.");
  const legend = h("div", {class: "legend"});
  const card = h("section", {class: "card chart", "aria-label": title}, h("div", {class: "card-head"}, h("h2", {}, title), legend),
                 place, empty, table);
  let plot = null;
  let data = null;
  let width = 0;
  const show = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(digits)}${unit}`);

  function readings(index) {
    legend.replaceChildren(...series.map((one, i) => {
      let value = null;
      if (data !== null) {
        const column = data[i + 1];
        let at = index ?? column.length - 1;
        while (at >= 0 && column[at] === null) --at;
        value = at >= 0 ? column[at] : null;
      }
      return h("span", {class: `key ${one.color}`}, h("i", {"aria-hidden": "true"}), `${one.label} `, h("b", {}, show(value)));
    }));
    if (data !== null && index !== undefined && index !== null)
      legend.prepend(h("span", {class: "key at"}, `step ${data[0][index]}`));
  }

  function build() {
    plot?.destroy();
    const axis = {stroke: css("--muted"), font, grid: {stroke: css("--grid"), width: 1}, ticks: {show: false}};
    plot = new uPlot({
      width, height: 220, cursor: {y: false, points: {size: 7}}, legend: {show: false},
      scales: {x: {time: false}},
      axes: [{...axis, space: 60, size: 28, grid: {show: false}}, {...axis, size: 52}],
      series: [{}, ...series.map((one) => ({
        label: one.label, stroke: css(`--${one.color}`), width: one.points ? 1.5 : 1.6, spanGaps: true,
        dash: one.dash, points: {show: Boolean(one.points), size: 7, fill: css("--card")},
      }))],
      hooks: {setCursor: [(self) => readings(self.cursor.idx)]},
    }, data, place);
  }

  const resize = new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    if (plot === null) data !== null && build();
    else plot.setSize({width, height: 220});
  });
  resize.observe(place);
  const recolour = () => plot !== null && build();
  addEventListener("theme", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  readings();

  return {
    card,
    update(xs, columns) {
      if (xs.length === 0) return;
      empty.hidden = true;
      data = [xs, ...columns];
      table.textContent = `${title}: ${xs.length} points up to step ${xs[xs.length - 1]}`;
      if (plot !== null) plot.setData(data);
      else if (width > 0) build();
      readings();
    },
    end() {
      resize.disconnect();
      removeEventListener("theme", recolour);
      plot?.destroy();
    },
  };
}
