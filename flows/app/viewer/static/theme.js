// The chosen theme, before anything is drawn.
"use strict";
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
