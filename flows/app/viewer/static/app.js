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

// ---- lists: a click on a column's name sorts the rows that are shown by it

const cellValue = (row, column) => {
  const cell = row.cells[column], said = cell?.dataset.value ?? cell?.textContent.trim() ?? "";
  const number = Number.parseFloat(said.replaceAll(",", "").replace("−", "-"));
  return { said, number: /^[-+−]?[\d.]/.test(said) && !Number.isNaN(number) ? number : null };
};

function compareValues(a, b) {
  if (a.number !== null && b.number !== null) return a.number - b.number;
  if ((a.number === null) !== (b.number === null)) return a.number === null ? 1 : -1;
  return a.said.localeCompare(b.said, undefined, { numeric: true });
}

function sortBy(head) {
  const table = head.closest("table"), column = head.cellIndex;
  const falls = head.getAttribute("aria-sort") === (head.classList.contains("num") ? "descending" : "ascending");
  const order = head.classList.contains("num") !== falls ? "descending" : "ascending";
  all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => row.cells.length > column).map((row) => ({ row, value: cellValue(row, column) }));
    rows.sort((a, b) => sign * compareValues(a.value, b.value)).forEach(({ row }) => body.append(row));
  }
  at = -1;
}

function makeSortable(inside) {
  all("table.list:not([data-grid]) thead th", inside).forEach((head) => {
    if (!head.textContent.trim() || head.closest("table").tBodies[0]?.rows.length < 2) return;
    head.tabIndex = 0;
    head.classList.add("sorts");
    head.title = "sort the rows shown by this column";
  });
}
document.addEventListener("htmx:afterSettle", (event) => makeSortable(event.detail.elt.parentElement ?? document));
document.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("th.sorts")) { event.stopImmediatePropagation(); sortBy(event.target); } });

// ---- figures can be saved: as SVG, or as PNG at twice their size

function addSaving(inside) {
  all("figure.card", inside).forEach((figure) => {
    if (!$(".plot svg", figure) || $("[data-save]", figure)) return;
    const box = document.createElement("p");
    box.className = "saving";
    for (const kind of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.save = kind;
      button.textContent = kind.toUpperCase();
      button.title = `save this figure as ${kind.toUpperCase()}`;
      box.append(button);
    }
    figure.append(box);
  });
}
document.addEventListener("htmx:afterSettle", () => addSaving(document));
addSaving(document);

function download(name, address) {
  const link = document.createElement("a");
  link.download = name;
  link.href = address;
  link.click();
}

function saveFigure(figure, kind) {
  const svg = $(".plot svg:not([class*=swatch])", figure), name = figure.id || "figure", style = getComputedStyle(svg);
  const box = svg.viewBox.baseVal, width = box?.width || svg.clientWidth, height = box?.height || svg.clientHeight;
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("color", style.color);
  copy.setAttribute("font-family", style.fontFamily);
  const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  if (kind === "svg") { download(`${name}.svg`, address); return; }
  const picture = new Image(), canvas = document.createElement("canvas");
  picture.onload = () => {
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    const pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(figure).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    download(`${name}.png`, canvas.toDataURL("image/png"));
  };
  picture.src = address;
}

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

makeSortable(document);

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
  return Boolean(next);
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
  const opens = event.target.closest("a[data-opens]");
  if (opens) { const part = $(opens.getAttribute("href")); if (part) part.open = true; }
  const head = event.target.closest("th.sorts");
  if (head) sortBy(head);
  if (event.target.dataset?.save) saveFigure(event.target.closest("figure"), event.target.dataset.save);
});

// ---- filters: a choice takes effect at once; their button stays for text

document.addEventListener("change", (event) => { if (event.target.matches("form.filters:not([data-figure]) select")) event.target.form.requestSubmit(); });

// ---- labels

// A label in a sample leads on to the next item, the last one back to the list; a note or a refused label does not.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  const form = event.target, button = event.detail.requestConfig.triggeringEvent?.submitter;
  if (!form.matches("form.labels") || event.detail.xhr.status !== 200) return;
  if (form.elements.sample.value && button?.matches("[data-label]") && !beside(1)) up();
});

// ---- a part of the page that cannot be had: the server has ended, or has another token since

function gone(why) { $("#gone").textContent = why; $("#gone").hidden = !why; }
document.addEventListener("htmx:sendError", () => gone("The viewer does not answer. Was it stopped?"));
document.addEventListener("htmx:responseError", (event) => gone(event.detail.xhr.status === 401
  ? "The viewer does not know this browser any more: open the address that `selfplay view` prints."
  : event.detail.xhr.status === 404 ? "This is gone: the run was removed or renamed."
  : `The viewer could not answer (${event.detail.xhr.status}): its terminal says why.`));
document.addEventListener("htmx:afterSwap", () => gone(""));

// ---- a run at work: its figures follow when a score is new, and what was scrolled stays where it is

const headVersion = () => $("#head")?.dataset.version;
let drawnVersion = headVersion(), scrolled = [];
document.addEventListener("htmx:beforeSwap", (event) => { scrolled = all(".scroll", event.detail.target).map((box) => box.scrollLeft); });
document.addEventListener("htmx:afterSwap", () => {
  all("#stages .scroll").forEach((box, i) => { if (scrolled[i]) box.scrollLeft = scrolled[i]; });
  if (headVersion() && headVersion() !== drawnVersion) {
    drawnVersion = headVersion();
    for (const part of ["#findings", "#figures"]) if ($(part)) htmx.trigger(part, "refresh");
  }
});

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
