// Keys, figures, and the memory of the list that a page was opened from. No page needs it to be read.
"use strict";

const COLOURS = ["#3b7dd0", "#dd7d2b", "#2a9d76", "#9a63cc", "#cf4a68", "#879427", "#2a9bad", "#a8714a"];
const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
const $ = (selector, inside = document) => inside.querySelector(selector);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// ---- figures

function drawFigure(box) {
  const rows = JSON.parse(box.dataset.plot);
  const series = [...new Set(rows.map((row) => row.series))];
  const many = series.length > 1;
  const colour = { domain: series, range: COLOURS, legend: many };
  const dense = rows.length / series.length > 60;
  const marks = [
    Plot.gridY({ strokeOpacity: 0.08 }),
    Plot.lineY(rows, { x: "x", y: "y", stroke: "series", strokeWidth: 1.6, z: "series" }),
  ];
  if (rows.some((row) => row.error != null)) {
    marks.push(Plot.ruleX(rows, { x: "x", y1: (r) => r.y - (r.error || 0), y2: (r) => r.y + (r.error || 0), stroke: "series" }));
  }
  if (!dense) marks.push(Plot.dot(rows, { x: "x", y: "y", fill: "series", r: 2.4, href: "href" }));
  marks.push(Plot.tip(rows, Plot.pointer({ x: "x", y: "y", stroke: "series", title: (r) =>
    `${r.series ?? ""}\n${Number(r.y).toPrecision(4)}${r.error != null ? " ± " + Number(r.error).toPrecision(2) : ""}` })));
  const spread = Math.max(...rows.map((r) => r.x)) - Math.min(...rows.map((r) => r.x));
  const drawn = Plot.plot({
    width: box.clientWidth, height: 200, marginLeft: 46, marginBottom: 30, marginTop: 12, color: colour, marks,
    x: { label: "iterations completed", labelAnchor: "right", ticks: Math.min(8, Math.ceil(spread)), tickFormat: "~g" },
    y: { label: null, ticks: 4, tickFormat: "~g", nice: true },
    style: { background: "transparent", fontFamily: "inherit", fontSize: "11px" },
  });
  box.replaceChildren(drawn);
}

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

function drawFigures() {
  if (window.Plot) all("[data-plot]").forEach(drawFigure);
  all("[data-spark]").forEach(drawSpark);
}
drawFigures();
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawFigures, 150); });

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
  s: () => { const sql = $(".behind"); if (sql) { sql.open = !sql.open; sql.scrollIntoView(); } },
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
