// Light or dark: what the person chose here, else what the system says. Set before the page is drawn, so that nothing flashes.
"use strict";
const theme = {
  chosen() {
    try { return localStorage.getItem("truetail-theme"); } catch { return null; }
  },
  now() {
    return theme.chosen() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  },
  apply() {
    document.documentElement.dataset.theme = theme.now();
  },
  flip() {
    try { localStorage.setItem("truetail-theme", theme.now() === "dark" ? "light" : "dark"); } catch { /* private window: until reload */ }
    theme.apply();
    document.dispatchEvent(new Event("truetail-theme"));
  },
};
theme.apply();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  theme.apply();
  document.dispatchEvent(new Event("truetail-theme"));
});
