// The live page: asks once a second and draws what it is told. Text of the target, the trace or the scenario only ever becomes textContent.
"use strict";
const $ = (id) => document.getElementById(id);
const PERIOD_MS = 1000;
const PERCENTILES = ["p50", "p95", "p99", "p99.9"];
const page = { range: "whole", data: null, misses: 0, done: false, telemetry: "", verdictTries: 0 };

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}
const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
const milli = (value) => (value === null || value === undefined ? "–" : value >= 10000 ? `${(value / 1000).toFixed(1)} s` : value >= 100 ? value.toFixed(1) : value.toFixed(2));
const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(0)} %`);
const last = (list) => (list && list.length ? list[list.length - 1] : null);

const SPECS = {
  rates: { title: "Arrivals per second", note: "dashed: the plan", unit: "", series: [
    { label: "planned", colour: "--s5", dash: [6, 4], steps: true, width: 1.5, gaps: true }, { label: "sent", colour: "--s1" },
    { label: "completed", colour: "--s3" }, { label: "dropped", colour: "--s2" }] },
  response: { title: "Response time", note: "what a user feels", unit: "ms", log: true, series: [
    { label: "p50", colour: "--s3" }, { label: "p95", colour: "--s1" }, { label: "p99", colour: "--s2" }, { label: "p99.9", colour: "--s4" }] },
  service: { title: "Service time", note: "server and wire alone", unit: "ms", log: true, series: [
    { label: "p50", colour: "--s3" }, { label: "p95", colour: "--s1" }, { label: "p99", colour: "--s2" }, { label: "p99.9", colour: "--s4" }] },
  lateness: { title: "Lateness", note: "the generator's own delay", unit: "ms", log: true, series: [
    { label: "p50", colour: "--s3" }, { label: "p99", colour: "--s2" }, { label: "p99.9", colour: "--s4" }] },
  flight: { title: "In flight", note: "over all workers", unit: "", least: 1, series: [{ label: "in flight", colour: "--s1", fill: true }] },
  cpu: { title: "Busiest worker", note: "share of one core", unit: "%", least: 100, series: [{ label: "CPU", colour: "--s4", fill: true }] },
};
const TTFT = { ...SPECS.response, title: "Time to first token", note: "intended to first token" };
for (const [key, spec] of Object.entries(SPECS)) charts.make($("charts"), key, spec);

function fill(table, head, rows, mark) {
  const thead = element("thead"), tbody = element("tbody"), top = element("tr");
  for (const title of head) { const th = element("th", title); th.scope = "col"; top.append(th); }
  thead.append(top);
  for (const row of rows) {
    const tr = element("tr", null, row.className);
    for (const [i, cell] of row.cells.entries()) {
      const td = element("td", cell, mark?.(row, i));
      if (i === 0) td.title = cell;
      tr.append(td);
    }
    tbody.append(tr);
  }
  table.replaceChildren(thead, tbody);
}

function tiles(data) {
  const now = data.recent, response = data.percentiles.response ?? {}, lateness = data.percentiles.lateness ?? {}, ledger = data.ledger;
  const bad = ledger.failed + ledger.timed_out + ledger.abandoned;
  const list = [
    ["Sent now", charts.figure(last(now.sent)), "/s", `planned ${charts.figure(last(now.planned))}/s`],
    ["In flight", number(data.levels.in_flight), "", `${number(data.levels.backlog)} wait for a user`],
    ["Errors", number(bad), "", `${number(ledger.timed_out)} timed out`, bad > 0],
    ["Dropped", number(ledger.dropped + ledger.lost), "", `${number(ledger.lost)} lost with a worker`, ledger.dropped + ledger.lost > 0],
    ["Response p50", milli(response.p50), "ms", `now ${milli(last(now["response_p50"]))}`],
    ["Response p99", milli(response.p99), "ms", `now ${milli(last(now["response_p99"]))}`],
    ["Response p99.9", milli(response["p99.9"]), "ms", `max ${milli(response.max)}`],
    ["Lateness p99", milli(lateness.p99), "ms", `at most ${milli(data.run.limits_ms.lateness_p99)}`, lateness.p99 > data.run.limits_ms.lateness_p99],
  ];
  $("tiles").replaceChildren(...list.map(([label, value, unit, sub, red]) => {
    const tile = element("div", null, red ? "tile bad" : "tile"), figure = element("div", value, "value");
    if (unit && !value.endsWith("s")) figure.append(element("small", unit));
    tile.append(element("div", label, "label"), figure, element("div", sub, "sub"));
    return tile;
  }));
}

const WORDS = { green: "Valid so far", amber: "Valid so far, with doubts", red: "Not valid" };
function light(data) {
  $("light").className = `card light ${data.light.colour}`;
  const word = data.state === "waiting" ? "Waiting for Start" : data.state === "muster" ? "Gathering the workers" : data.final && data.light.colour !== "red" ? "The load was as planned" : WORDS[data.light.colour];
  if ($("light-word").textContent !== word) $("light-word").textContent = word;
  $("reasons").replaceChildren(...data.light.reasons.map((reason) => element("li", reason.text, reason.colour)));
}

const STATES = { met: "met", missed: "missed", close: "too close", few: "too few yet", none: "no data", report: "in report" };
function slos(data) {
  const items = data.slos.map((slo) => {
    const item = element("li");
    item.append(element("span", STATES[slo.state], `tag ${slo.state}`), element("code", slo.text), element("span", slo.measured, "now"));
    item.title = `n = ${number(slo.n)}`;
    return item;
  });
  $("slos").replaceChildren(...(items.length ? items : [element("li", "The scenario states no objective: the verdict will be INVALID.")]));
}

function ratesData(data) {
  const now = data[page.range], at = new Map();
  const put = (t, i, v) => { if (!at.has(t)) at.set(t, [null, null, null, null]); at.get(t)[i] = v; };
  now.to_s.forEach((t, i) => { put(t, 0, now.planned[i]); put(t, 1, now.sent[i]); put(t, 2, now.completed[i]); put(t, 3, now.dropped[i]); });
  const end = last(now.to_s) ?? 0, ahead = page.range === "whole" ? Infinity : end + 30;
  data.plan.from_s.forEach((t, i) => { if (t >= end && t <= ahead) put(t, 0, data.plan.rate[i]); });
  const plan_end = data.run.duration_s;
  if (plan_end > end && plan_end <= ahead && data.plan.rate.length) put(plan_end, 0, last(data.plan.rate));
  const times = [...at.keys()].sort((a, b) => a - b);
  return [times, ...[0, 1, 2, 3].map((i) => times.map((t) => at.get(t)[i]))];
}

function draw(data) {
  const now = data[page.range], times = now.to_s, none = times.map(() => null);
  charts.set("rates", ratesData(data));
  for (const series of ["response", "service"]) charts.set(series, [times, ...PERCENTILES.map((p) => now[`${series}_${p}`] ?? none)]);
  charts.set("lateness", [times, ...["p50", "p99", "p99.9"].map((p) => now[`lateness_${p}`] ?? none)]);
  charts.set("flight", [times, now.in_flight]);
  charts.set("cpu", [times, now.cpu]);
  if (data.percentiles.ttft) {
    if (!charts.all.has("ttft")) charts.make($("charts"), "ttft", TTFT);
    charts.set("ttft", [times, ...PERCENTILES.map((p) => now[`ttft_${p}`] ?? none)]);
  }
  $("width").textContent = page.range === "whole" ? `a point is ${charts.figure(data.width_s)} s; each percentile is exact for its stretch` : "a point is 1 s";
}

// Several sources that tell the same quantity share a chart: two GPUs are two lines, not two pictures.
function quantities(tracks) {
  const found = new Map();
  for (const track of tracks) {
    const key = JSON.stringify([track.title, track.unit, track.simulated]);
    found.set(key, [...(found.get(key) ?? []), track]);
  }
  return [...found.values()];
}

function joined(tracks) {
  const times = [...new Set(tracks.flatMap((track) => track[page.range][0]))].sort((a, b) => a - b);
  return [times, ...tracks.map((track) => {
    const at = new Map(track[page.range][0].map((t, i) => [t, track[page.range][1][i]]));
    return times.map((t) => at.get(t) ?? null);
  })];
}

function telemetry(data) {
  const groups = quantities(data.telemetry);
  const shape = JSON.stringify(groups.map((tracks) => tracks.map((t) => [t.source, t.title])));
  if (shape !== page.telemetry) {
    page.telemetry = shape;
    for (const key of [...charts.all.keys()].filter((k) => k.startsWith("t:"))) { charts.all.get(key).plot.destroy(); charts.all.delete(key); }
    $("telemetry").replaceChildren();
    groups.forEach((tracks, i) => charts.make($("telemetry"), `t:${i}`, {
      title: tracks[0].title, note: tracks[0].simulated ? "simulated device" : tracks.length > 1 ? "" : tracks[0].source, unit: tracks[0].unit, least: tracks[0].unit === "%" ? 100 : 0.001,
      series: tracks.map((t, k) => ({ label: tracks.length > 1 ? t.source : t.title, colour: `--s${k % 5 + 1}`, fill: tracks.length === 1, gaps: true })) }));
  }
  $("telemetry-title").hidden = groups.length === 0;
  groups.forEach((tracks, i) => charts.set(`t:${i}`, joined(tracks)));
}

function tables(data) {
  const row = (name, f) => [name, number(f.n), ...PERCENTILES.map((p) => milli(f[p])), milli(f.max), milli(f.mean)];
  const head = ["n", ...PERCENTILES, "max", "mean"];
  fill($("percentiles"), ["Series", ...head], Object.entries(data.percentiles).map(([name, f]) => ({ cells: row(name, f) })));
  fill($("names"), ["Request", ...head, "failed"], data.names.map((f) => ({ cells: [...row(f.name, f), number(f.failed)], failed: f.failed })), (r, i) => (i === 8 && r.failed ? "hot" : ""));
  const replicas = data.replicas;
  $("replica-card").hidden = replicas.rows.length === 0;
  fill($("replicas"), ["Replica", ...head], replicas.rows.map((f) => ({ cells: row(f.name, f) })));
  if (replicas.rows.length > 1) {
    const wrong = element("s", `${milli(replicas.mean_of_p99s_ms)} ms`);
    $("mean").replaceChildren("True p99 over the replicas: ", element("strong", `${milli(replicas.true_p99_ms)} ms`), ". Their p99s averaged would say ", wrong,
      ", which is wrong: percentiles cannot be averaged.");
  } else $("mean").replaceChildren();
  const ledger = data.ledger, sum = ledger.sent + ledger.dropped + ledger.lost + ledger.unsent, open = ledger.sent - ledger.ok - ledger.failed - ledger.timed_out - ledger.abandoned;
  const names = { unsent: data.final ? "unsent" : "not yet sent", timed_out: "timed out" };
  const entries = Object.entries(ledger).map(([name, count]) => ({ cells: [names[name] ?? name, number(count)], bad: count > 0 && ["dropped", "lost", "failed", "timed_out", "abandoned"].includes(name) }));
  entries.splice(5, 0, { cells: ["in flight", number(open)] });
  fill($("ledger"), [sum === ledger.scheduled ? "adds up" : `does not add up: ${number(sum - ledger.scheduled)}`, "arrivals"], entries, (r, i) => (i === 1 && r.bad ? "hot" : ""));
  fill($("workers"), ["Worker", "slot", "state", "sent", "dropped", "in flight", "response p99", "lateness p99", "CPU", "longest stall", "clock offset", "± residual", "heard"],
    data.workers.map((w) => ({ className: w.state === "lost" ? "lost" : "", cells: [w.name, number(w.slot), w.state, number(w.sent), number(w.dropped), number(w.in_flight), milli(w.response_ms),
      milli(w.lateness_ms), percent(w.cpu_share), milli(w.stall_max_ms), `${w.clock_offset_ms.toFixed(3)} ms`, `${w.clock_residual_ms.toFixed(3)} ms`,
      w.age_s === null ? "–" : data.final || w.state === "drained" ? "last word" : `${w.age_s.toFixed(0)} s ago`], hot: w.cpu_share > 0.8 })), (r, i) => (i === 8 && r.hot ? "hot" : ""));
}

const GRAVE = new Set(["worker-lost", "freeze", "message-refused", "throttling", "gpu-lost", "xid", "schedule-mismatch"]);
function events(data) {
  $("events").replaceChildren(...data.events.map((event) => {
    const item = element("li");
    item.append(element("time", event.at_s === null ? "before" : charts.clock(event.at_s)), element("span", event.kind, GRAVE.has(event.kind) ? "grave" : ""), element("span", event.text));
    return item;
  }));
}

function header(data) {
  $("scenario").textContent = data.run.scenario;
  $("scenario").title = data.run.description;
  document.title = `${data.run.scenario}: ${data.state} (Truetail)`;
  const left = Math.max(0, data.run.duration_s - data.now_s);
  const said = { waiting: "waiting for Start on Locust's page", muster: "gathering workers", running: `running, ${charts.clock(left)} left`, draining: "draining", ended: data.stop_reason ? `ended: ${data.stop_reason}` : "ended" };
  $("state").textContent = said[data.state];
  $("state").className = `pill ${data.state}`;
  $("done").style.width = `${100 * Math.min(1, Math.max(0, data.now_s / data.run.duration_s))}%`;
  $("stop").hidden = !(data.state === "running" || data.state === "muster") || Boolean(data.stop_reason);
  $("new").hidden = !(data.final && data.can_start);
  $("report").hidden = !data.verdict;
  $("logout").hidden = !data.login;
  $("foot").textContent = `${data.run.id}, schedule ${data.run.digest}, target ${data.run.target}`;
  const verdict = data.verdict;
  $("verdict").hidden = !verdict;
  if (verdict) {
    $("verdict").className = `card verdict ${["PASS", "FAIL", "INVALID"].includes(verdict.status) ? verdict.status : ""}`;
    $("verdict").querySelector("h2").textContent = verdict.status;
    $("verdict").querySelector("ul").replaceChildren(...verdict.reasons.map((reason) => element("li", reason)));
  }
}

function show(data) {
  page.data = data;
  for (const part of [header, light, tiles, slos, draw, telemetry, tables, events]) part(data);
}

function say(text) {
  $("gone").hidden = !text;
  if ($("gone").textContent !== text) $("gone").textContent = text;
}

async function poll() {
  let wait = PERIOD_MS;
  try {
    const answer = await fetch("data", { cache: "no-store", redirect: "manual" });
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(await answer.json());
    page.misses = 0;
    say("");
    if (page.data.final) wait = page.data.verdict ? 5000 : 1000;
  } catch {
    page.misses += 1;
    const final = page.data?.final;
    if (page.misses >= 2) say(final ? "The run has ended and its server is gone. These are its final figures." : "No answer from the master. The figures below are the last that came.");
    if (final && !page.data.can_start) return;
    wait = 2000;
  }
  setTimeout(poll, document.hidden ? 3 * wait : wait);
}

async function newRun() {
  $("new").disabled = true;
  await fetch("new", { method: "POST" });
  say("The form for the next run is coming");
  for (let i = 0; i < 60; i += 1) {
    await new Promise((done) => setTimeout(done, 500));
    try {
      if ((await fetch("../desk/scenarios", { cache: "no-store" })).ok) { location.href = "../"; return; }
    } catch { /* between two servers */ }
  }
  say("The form did not come; look at the terminal where truetail ui runs.");
}

$("theme").addEventListener("click", theme.flip);
$("stop").addEventListener("click", () => $("confirm").showModal());
$("confirm").addEventListener("close", () => { if ($("confirm").returnValue === "yes") { $("stop").disabled = true; fetch("stop", { method: "POST" }); } });
$("new").addEventListener("click", newRun);
$("log").addEventListener("click", () => {
  charts.logScale = !charts.logScale;
  $("log").setAttribute("aria-pressed", String(charts.logScale));
  charts.redraw();
  if (page.data) draw(page.data);
});
for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    page.range = button.dataset.range;
    for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    if (page.data) { draw(page.data); telemetry(page.data); }
  });
}
poll();
