// Keys, sparklines, and the memory of the list that a page was opened from. No page needs it to be read.
"use strict";

const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
const $ = (selector, inside = document) => inside.querySelector(selector);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// ---- sparklines

function drawSpark(box) {
  const values = JSON.parse(box.dataset.spark);
  if (values.length < 2) return;
  const low = Math.min(...values), high = Math.max(...values), spread = high - low || 1;
  const points = values.map((v, i) => `${(3 + (i * 74) / (values.length - 1)).toFixed(1)},${(17 - (14 * (v - low)) / spread).toFixed(1)}`);
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "polyline");
  svg.setAttribute("viewBox", "0 0 80 20");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  box.replaceChildren(svg);
}

all("[data-spark]").forEach(drawSpark);

// ---- lists: the rows that can be walked through, and the memory of them on the pages that they lead to

const rowsOfLists = () => all("[data-list] tbody tr, [data-row]").filter((row) => $("a[href]", row) && row.offsetParent);
const linkOf = (row) => $("a[href]", row);
let at = -1;

function move(by) {
  const rows = rowsOfLists();
  if (!rows.length) return false;
  rows[at]?.classList.remove("at");
  at = Math.max(0, Math.min(rows.length - 1, at + by));
  rows[at].classList.add("at");
  rows[at].scrollIntoView({ block: "nearest" });
  return true;
}

function remember() {
  const links = rowsOfLists().map((row) => linkOf(row).getAttribute("href"));
  if (links.length) sessionStorage.setItem("list", JSON.stringify({ from: location.pathname + location.search, links }));
}

function beside(by) {
  const page = $("[data-page]"), here = location.pathname + location.search;
  const list = JSON.parse(sessionStorage.getItem("list") || "null");
  const place = list ? list.links.indexOf(here) : -1;
  const next = place >= 0 ? list.links[place + by] : page?.dataset[by > 0 ? "next" : "previous"];
  if (next) location.assign(next);
}

function up() {
  const list = JSON.parse(sessionStorage.getItem("list") || "null");
  const here = location.pathname + location.search;
  if (list && list.links.includes(here) && list.from !== here) location.assign(list.from);
  else if ($("[data-up]")) location.assign($("[data-up]").dataset.up);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-list] a[href], [data-row] a[href]");
  if (link) remember();
  if (event.target.id === "help") $("#keys").showModal();
  if (event.target.id === "theme") changeTheme();
});

// ---- labels: who gives them is remembered by this browser

const nameLabellers = () => all(".labels .who").forEach((box) => { if (!box.value) box.value = localStorage.getItem("labeller") || ""; });
document.addEventListener("change", (event) => { if (event.target.matches(".who")) localStorage.setItem("labeller", event.target.value); });
document.addEventListener("htmx:afterSwap", nameLabellers);
nameLabellers();

// ---- a part of the page that cannot be had: the server has ended, or has another token since

function gone(why) { $("#gone").textContent = why; $("#gone").hidden = !why; }
document.addEventListener("htmx:sendError", () => gone("The viewer does not answer. Was it stopped?"));
document.addEventListener("htmx:responseError", (event) => gone(event.detail.xhr.status === 401
  ? "The viewer was restarted: open the address that it printed." : `The viewer could not answer (${event.detail.xhr.status}).`));
document.addEventListener("htmx:afterSwap", () => gone(""));

// ---- keys

function changeTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
}

const KEYS = {
  j: () => ($("[data-page]") ? beside(1) : move(1)),
  k: () => ($("[data-page]") ? beside(-1) : move(-1)),
  n: () => move(1),
  p: () => move(-1),
  o: () => { const row = rowsOfLists()[at]; if (row) { remember(); linkOf(row).click(); } },
  u: up,
  h: () => $("#heat")?.click(),
  s: () => all(".behind").forEach((sql) => { sql.open = !sql.open; sql.scrollIntoView(); }),
  t: changeTheme,
  "/": () => $("#find").focus(),
  "?": () => $("#keys").showModal(),
};
KEYS.Enter = KEYS.o;
for (let i = 1; i <= 5; i++) KEYS[i] = () => all("[data-label]")[i - 1]?.click();

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});
