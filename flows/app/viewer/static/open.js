// Hand the token of the first address to the server, which keeps it in a cookie, and forget it.
"use strict";
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  fetch("/open", { method: "POST", body: token }).then((answer) => {
    if (answer.ok) location.reload();
    else document.getElementById("say").textContent = "The token is not that of this server: run selfplay view again.";
  });
}
