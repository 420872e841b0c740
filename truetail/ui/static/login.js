// Says why the last try failed.
"use strict";
fetch("login/error", { cache: "no-store" }).then((answer) => answer.json()).then(({ error }) => {
  const problem = document.getElementById("problem");
  problem.textContent = error;
  problem.hidden = !error;
});
