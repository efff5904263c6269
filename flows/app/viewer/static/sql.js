// The SQL page: its keys, the grid of a result, and its figure.
"use strict";
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) document.getElementById("ask").submit();
});

// ---- the table of a result becomes a grid: to sort, filter, and move and widen columns

function text(value, link) {
  const shown = document.createElement(link ? "a" : "span");
  shown.textContent = value ?? "null";
  if (value === null) shown.className = "none";
  if (link) shown.href = link;
  return shown;
}

function drawGrid(table) {
  const valueOf = (cell) => ($(":scope > .none", cell) ? null : cell.textContent);
  const columns = [...table.tHead.rows[0].cells].map((head, i) => {
    const numeric = head.classList.contains("num");
    return { title: head.textContent, titleFormatter: (cell) => text(cell.getValue()), field: `c${i}`, sorter: numeric ? "number" : "string",
      hozAlign: numeric ? "right" : "left", formatter: (cell) => text(cell.getValue(), cell.getData()[`link${i}`]), headerFilter: "input", maxInitialWidth: 480 };
  });
  const data = [...table.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].flatMap((cell, i) =>
    [[`c${i}`, valueOf(cell)], [`link${i}`, $("a", cell)?.getAttribute("href")]])));
  const box = document.createElement("div");
  table.parentElement.replaceChildren(box);
  const height = data.length > 18 ? { height: "70vh" } : {};
  new Tabulator(box, { data, columns, ...height, layout: "fitDataFill", movableColumns: true, headerFilterLiveFilterDelay: 150 });
}
document.addEventListener("htmx:afterSettle", () => all("table[data-grid]").forEach(drawGrid));

// ---- the figure

const COLOURS = ["#3f83d6", "#e2832f", "#2fa57c", "#a06ad0", "#d8506f", "#8f9a2b", "#2ea3b5", "#b07a50"];

function drawResult(form) {
  const rows = JSON.parse(form.dataset.figure), asked = Object.fromEntries(new FormData(form));
  const box = document.getElementById("drawn"), colour = asked.series || undefined;
  const channels = { x: asked.x, y: asked.y };
  const mark = asked.as === "bars" ? Plot.barY(rows, { ...channels, fill: colour })
    : asked.as === "points" ? Plot.dot(rows, { ...channels, stroke: colour })
    : Plot.lineY(rows, { ...channels, stroke: colour, marker: true, sort: asked.x });
  box.replaceChildren(Plot.plot({ width: box.clientWidth, height: 320, marginLeft: 56, color: { legend: Boolean(colour), range: COLOURS },
    marks: [Plot.gridY({ strokeOpacity: 0.08 }), mark], style: { background: "transparent", fontFamily: "inherit" } }));
  $("svg", box)?.setAttribute("role", "img");
  $("svg", box)?.setAttribute("aria-label", `${asked.y} by ${asked.x}`);
  addSaving(document);
}
document.addEventListener("change", (event) => { const form = event.target.closest("[data-figure]"); if (form) drawResult(form); });
document.addEventListener("toggle", (event) => { const form = event.target.querySelector?.("[data-figure]"); if (form && event.target.open) drawResult(form); }, true);
