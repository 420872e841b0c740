// The form: a scenario's text is checked as it is typed, its planned rate drawn, and the run started once there are no faults.
"use strict";
const $ = (id) => document.getElementById(id);
const desk = { turn: 0, original: "", asked: 0, timer: 0 };
charts.make($("chart"), "plan", { title: "Planned arrivals per second", note: "nothing is sent before you start", unit: "", series: [{ label: "planned", colour: "--s1", steps: true, fill: true }] });

function list(id, texts, className) {
  $(id).replaceChildren(...texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (className) item.className = className;
    return item;
  }));
}

async function ask(path, body) {
  const answer = await fetch(path, body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : { cache: "no-store" });
  return { status: answer.status, told: await answer.json() };
}

function form() {
  const workers = Number.parseInt($("workers").value, 10);
  return { file: $("file").value, text: $("text").value, workers: Number.isNaN(workers) ? null : workers };
}

function plan(told) {
  const { plan: curve, about } = told;
  const [times, rates] = [[...curve.from_s], [...curve.rate]];
  if (rates.length) { times.push(Math.min(curve.until_s, curve.duration_s)); rates.push(rates[rates.length - 1]); }
  charts.set("plan", [times, rates]);
  $("plan-name").textContent = about.name;
  const whole = curve.until_s >= curve.duration_s;
  const rows = [
    ["Arrivals", about.arrivals],
    ["Duration", `${charts.clock(curve.duration_s)}${about.warmup_s ? `, the first ${charts.clock(about.warmup_s)} warm-up` : ""}`],
    ["Requests", whole ? `${curve.count.toLocaleString("en")} planned` : `about ${Math.round(curve.expected).toLocaleString("en")}; drawn as far as ${charts.clock(curve.until_s)}`],
    ["Peak", `${charts.figure(curve.peak)}/s in a stretch of ${charts.figure(curve.width_s)} s`],
    ["Target", about.target],
    ["Workers", `${about.workers}, at most ${about.pool.toLocaleString("en")} requests in flight each`],
    ["Objectives", about.slos.join(", ") || "none: the verdict will be INVALID"],
  ];
  $("about").replaceChildren(...rows.flatMap(([name, value]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = name;
    dd.textContent = value;
    return [dt, dd];
  }));
  list("doubts", told.doubts, "doubt");
}

async function check() {
  const mine = ++desk.asked;
  let answer;
  try { answer = await ask("desk/check", form()); } catch { $("verdict").textContent = "no answer; is truetail ui still running?"; return; }
  if (mine !== desk.asked) return; // a later text was asked about meanwhile
  const { status, told } = answer;
  list("faults", told.faults ?? []);
  $("text").setAttribute("aria-invalid", String(status !== 200));
  $("start").disabled = status !== 200;
  $("verdict").textContent = status === 200 ? "No faults. Nothing is sent before you start." : `${told.faults.length} fault${told.faults.length > 1 ? "s" : ""}: nothing can be started`;
  if (status === 200) plan(told);
}

function later() {
  clearTimeout(desk.timer);
  $("start").disabled = true;
  desk.timer = setTimeout(check, 350);
}

async function pick() {
  const { told } = await ask(`desk/text?file=${encodeURIComponent($("file").value)}`);
  desk.original = told.text ?? "";
  $("text").value = desk.original;
  await check();
}

async function untilLive() {
  for (;;) {
    await new Promise((done) => setTimeout(done, 500));
    try {
      const live = await fetch("fleet/data", { cache: "no-store" });
      if (live.ok && live.headers.get("content-type")?.includes("json")) { location.href = "fleet/"; return; }
    } catch { /* between two servers */ }
    try {
      const again = await ask("desk/scenarios");
      if (again.told.turn > desk.turn) { location.reload(); return; } // it did not start; the new desk says why
    } catch { /* the master's, or nobody's yet */ }
  }
}

async function start(event) {
  event.preventDefault();
  $("start").disabled = true;
  $("verdict").textContent = "Starting: target, master and workers\u2026";
  const { status, told } = await ask("desk/start", form());
  if (status !== 202) { list("faults", told.faults ?? []); $("verdict").textContent = "not started"; return; }
  for (const field of $("form").elements) field.disabled = true;
  await untilLive();
}

async function begin() {
  const { told } = await ask("desk/scenarios");
  desk.turn = told.turn;
  $("file").replaceChildren(...told.files.map((file) => new Option(file, file, false, file === told.chosen)));
  $("notice").hidden = !told.notice.length;
  $("notice").querySelector("ul").replaceChildren(...told.notice.map((text) => { const li = document.createElement("li"); li.textContent = text; return li; }));
  $("logout").hidden = !(await ask("desk/login")).told.login;
  if (told.files.length) await pick();
  else $("verdict").textContent = "There is no scenario here: start truetail ui beside a scenarios folder, or name a file.";
}

$("theme").addEventListener("click", theme.flip);
$("file").addEventListener("change", pick);
$("text").addEventListener("input", later);
$("workers").addEventListener("input", later);
$("reset").addEventListener("click", () => { $("text").value = desk.original; check(); });
$("form").addEventListener("submit", start);
begin();
