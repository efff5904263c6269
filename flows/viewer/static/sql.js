// The SQL page: its keys, and the figure of a result.
"use strict";
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) document.getElementById("ask").submit();
});

function drawResult(form) {
  const rows = JSON.parse(form.dataset.figure), asked = Object.fromEntries(new FormData(form));
  const box = document.getElementById("drawn"), colour = asked.series || undefined;
  const channels = { x: asked.x, y: asked.y };
  const mark = asked.as === "bars" ? Plot.barY(rows, { ...channels, fill: colour })
    : asked.as === "points" ? Plot.dot(rows, { ...channels, stroke: colour })
    : Plot.lineY(rows, { ...channels, stroke: colour, marker: true, sort: asked.x });
  box.replaceChildren(Plot.plot({ width: box.clientWidth, height: 320, marginLeft: 56, color: { legend: Boolean(colour), range: COLOURS },
    marks: [Plot.gridY({ strokeOpacity: 0.08 }), mark], style: { background: "transparent", fontFamily: "inherit" } }));
}
document.addEventListener("change", (event) => { const form = event.target.closest("[data-figure]"); if (form) drawResult(form); });
document.addEventListener("toggle", (event) => { const form = event.target.querySelector?.("[data-figure]"); if (form && event.target.open) drawResult(form); }, true);
