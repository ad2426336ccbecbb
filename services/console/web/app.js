// Which page is shown, who may see it, and the frame around it.

import {signedIn, signIn, signOut} from "./api.js";
import {h, notice} from "./dom.js";
import {jobPage} from "./job.js";
import {listPage} from "./list.js";
import {nodesPage} from "./nodes.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
let page = null;  // AbortController of what is shown

function frame(crumbs, title) {
  document.title = title ? `${title} · Tessera` : "Tessera";
  document.getElementById("crumbs").replaceChildren(...crumbs);
  document.getElementById("sign-out").hidden = !signedIn();
  link.textContent = "";
  link.className = "link";
}

export function showLink(state) {
  link.className = `link ${state}`;
  link.textContent = {live: "live", reconnecting: "reconnecting…", ended: "ended"}[state] ?? "";
}

function loginPage(message) {
  frame([], "Sign in");
  const error = h("p", {class: "wrong", role: "alert", id: "token-error"}, message);
  const input = h("input", {id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false",
                            "aria-describedby": "token-help token-error"});
  const button = h("button", {type: "submit", class: "primary"}, "Sign in");
  const form = h("form", {class: "login", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    error.textContent = "";
    try {
      if (await signIn(input.value)) return route();
      error.textContent = "The service refuses this token.";
    } catch (problem) {
      error.textContent = problem.message;
    }
    button.disabled = false;
    input.select();
  }}, h("img", {src: "/console/icon.svg", alt: "", width: "44", height: "44"}),
     h("h1", {}, "Sign in"),
     h("label", {for: "token"}, "Token"), input, error,
     h("p", {id: "token-help", class: "hint"}, "It stands in the file ", h("code", {}, "token"),
       " of the service's state directory, by default ", h("code", {}, "~/.local/state/tessera/token"),
       ". This page keeps it in memory only."), button);
  main.replaceChildren(form);
  input.focus();
}

function route() {
  page?.abort();
  if (!signedIn()) return loginPage("");
  page = new AbortController();
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  main.replaceChildren();
  if (parts[0] === "jobs" && parts.length === 3) {
    const [, ns, name] = parts;
    frame([h("a", {href: "#/"}, "Jobs"), h("span", {"aria-hidden": "true"}, "/"),
           h("span", {"aria-current": "page"}, ns === "default" ? name : `${ns} / ${name}`)], name);
    jobPage(main, ns, name, page.signal, showLink);
  } else if (parts.length === 1 && parts[0] === "nodes") {
    frame([h("a", {href: "#/"}, "Jobs"), h("span", {"aria-current": "page"}, "Nodes")], "Nodes");
    nodesPage(main, page.signal);
  } else if (parts.length === 0) {
    frame([h("span", {"aria-current": "page"}, "Jobs"), h("a", {href: "#/nodes"}, "Nodes")], "Jobs");
    listPage(main, page.signal);
  } else {
    frame([], "Not found");
    main.replaceChildren(notice("empty", "There is no such page", "", h("a", {href: "#/"}, "To the jobs")));
  }
}

const themes = ["auto", "light", "dark"];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").replaceChildren(h("span", {class: "wide"}, "Theme: "), theme);
  document.getElementById("theme").setAttribute("aria-label", `Colours: ${theme}`);
  dispatchEvent(new Event("theme"));
}

document.getElementById("theme").addEventListener("click", () => {
  const theme = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
  try {
    localStorage.setItem("theme", theme);
  } catch { /* private windows may have no storage */ }
  setTheme(theme);
});
document.getElementById("sign-out").addEventListener("click", () => {
  signOut();
  route();
});
addEventListener("hashchange", route);
addEventListener("token-refused", () => {
  if (!signedIn()) return;
  signOut();
  page?.abort();
  loginPage("The service no longer takes the token.");
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
  const search = document.querySelector("input[type=search]");
  if (search === null) return;
  event.preventDefault();
  search.focus();
});
let stored = null;
try {
  stored = localStorage.getItem("theme");
} catch { /* as above */ }
setTheme(themes.includes(stored) ? stored : "auto");
route();
