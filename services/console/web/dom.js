// Building and formatting.

/** An element: h("td", {class: "number", onclick: f}, "text", child). Falsy children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child || child === 0) element.append(child);
  }
  return element;
}

export const number = (value, digits = 0) =>
  (value ?? 0).toLocaleString("en-US", {maximumFractionDigits: digits, minimumFractionDigits: digits});

export function bytes(value) {
  if (!value) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (value >= 1000 && i < units.length - 1) {
    value /= 1024;
    ++i;
  }
  return `${number(value, i > 0 && value < 100 ? 1 : 0)} ${units[i]}`;
}

export function loss(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "string" ? value : value.toFixed(4);
}

/** "1h 4m", "3m 20s", "12s" of seconds. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** Of "12.5s". */
export const secondsOf = (text) => (text === undefined ? NaN : parseFloat(text));
export const ago = (time) => (time ? `${duration((Date.now() - Date.parse(time)) / 1000)} ago` : "–");
export const clock = (time) => (time ? new Date(time).toLocaleString("sv-SE") : "–");

const words = {unspecified: "unknown"};
export function stateChip(state = "unspecified") {
  return h("span", {class: `chip ${state}`}, words[state] ?? state);
}

/** What stands where data would: "empty", "loading" or "error". */
export function notice(kind, title, text, action) {
  return h("div", {class: `notice ${kind}`, role: kind === "error" ? "alert" : "status"},
           h("strong", {}, title), text && h("p", {}, text), action);
}

/** Resolves to whether the dialog was left by its last button. `fields` stand between text and buttons. */
function dialogOf(title, text, fields, verb, kind) {
  return new Promise((resolve) => {
    const dialog = h("dialog", {"aria-labelledby": "dialog-title"},
                     h("form", {method: "dialog"},
                       h("h2", {id: "dialog-title"}, title), h("p", {}, text), fields,
                       h("div", {class: "actions"},
                         h("button", {type: "button", class: "quiet", autofocus: !fields, onclick: () => dialog.close("no")}, "Back"),
                         h("button", {value: "yes", class: kind}, verb))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks before what can't be taken back; resolves to whether it was confirmed. */
export const confirmed = (title, text, verb) => dialogOf(title, text, null, verb, "danger");

/** Asks for a whole number from 1; resolves to it, or to null. */
export async function askedNumber(title, text, label, value, verb) {
  const input = h("input", {type: "number", id: "dialog-number", min: "1", step: "1", value: String(value), required: true, autofocus: true});
  const fields = h("div", {class: "field"}, h("label", {for: "dialog-number"}, label), input);
  return (await dialogOf(title, text, fields, verb, "primary")) ? Number(input.value) : null;
}
