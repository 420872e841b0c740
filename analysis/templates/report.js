// Copies a table as tab-separated text. A cell that a spreadsheet would take for a formula gets a quote in front.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const table = button.closest("section, article").querySelector("table");
    const cell = (item) => item.innerText.replace(/\s+/g, " ").trim().replace(/^(?=[=+@-].)/, "'");
    const text = [...table.rows].map((row) => [...row.cells].map(cell).join("\t")).join("\n");
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
}
