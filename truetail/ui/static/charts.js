// Line charts on uPlot: colours from the page's theme, one shared cursor, redrawn in place as data comes.
"use strict";
const charts = {
  all: new Map(),
  sync: uPlot.sync("truetail"),
  logScale: false,

  css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  },

  clock(seconds) {
    if (seconds < 0) return `-${charts.clock(-seconds)}`;
    const s = Math.round(seconds);
    const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
    const two = (n) => String(n).padStart(2, "0");
    return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
  },

  figure(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    return size >= 1000 ? Math.round(value).toLocaleString("en") : size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size === 0 ? "0" : value.toFixed(2);
  },

  tick(value) {
    return value === null || value === undefined ? "" : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 });
  },

  // spec: {title, unit, note, series: [{label, colour, dash, fill, width}], log, zero}
  make(holder, key, spec) {
    const chart = { spec, place: document.createElement("div"), plot: null, data: [[], ...spec.series.map(() => [])] };
    const { place } = chart;
    const figure = document.createElement("figure");
    figure.className = "card";
    const caption = document.createElement("figcaption");
    const title = document.createElement("h2");
    title.textContent = spec.unit ? `${spec.title} (${spec.unit})` : spec.title;
    const note = document.createElement("span");
    note.className = "note";
    note.textContent = spec.note ?? "";
    caption.append(title, note);
    place.className = "chart";
    place.addEventListener("mouseleave", () => setTimeout(() => charts.rest(chart)));
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${spec.title}: ${spec.series.map((s) => s.label).join(", ")} over time; the figures are in the tables below`);
    figure.append(caption, place);
    holder.append(figure);
    charts.all.set(key, chart);
    charts.draw(chart);
    return chart;
  },

  draw(chart) {
    chart.plot?.destroy();
    const { spec, place } = chart;
    const axis = { stroke: charts.css("--soft"), grid: { stroke: charts.css("--grid"), width: 1 }, ticks: { stroke: charts.css("--grid"), size: 4 }, font: "11px system-ui, sans-serif" };
    const log = charts.logScale && spec.log;
    chart.plot = new uPlot(
      {
        width: Math.max(200, place.clientWidth),
        height: 186,
        cursor: { sync: { key: charts.sync.key, setSeries: false, scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 6 } },
        legend: { live: true },
        scales: {
          x: { time: false },
          y: log ? { distr: 3, log: 10 } : { range: (u, low, high) => [spec.floor ?? 0, Math.max(high === null ? 1 : high * 1.08, spec.least ?? 0.001)] },
        },
        axes: [
          { ...axis, values: (u, ticks) => ticks.map((t) => charts.clock(t)), space: 64, size: 32 },
          { ...axis, size: 50, values: (u, ticks) => ticks.map((t) => charts.tick(t)) },
        ],
        series: [
          { label: "at", value: (u, v) => (v === null ? "–" : charts.clock(v)) },
          ...spec.series.map((s) => ({
            label: s.label,
            stroke: charts.css(s.colour),
            width: s.width ?? 1.75,
            dash: s.dash,
            spanGaps: s.gaps ?? false,
            points: { show: false },
            fill: s.fill ? charts.css(s.colour) + "22" : undefined,
            paths: s.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
            value: (u, v) => charts.figure(v),
          })),
        ],
      },
      chart.data,
      place,
    );
    setTimeout(() => charts.rest(chart)); // a new plot puts its legend to rest by itself, a moment later
  },

  // While nobody points at the chart its legend shows the newest figures (of a plan that runs ahead: those of now).
  rest(chart) {
    if (chart.plot.cursor.idx !== null && chart.plot.cursor.left >= 0) return;
    const lead = chart.data[Math.min(2, chart.data.length - 1)];
    let at = lead.length - 1;
    while (at > 0 && lead[at] === null) at -= 1;
    if (at >= 0) chart.plot.setLegend({ idx: at });
  },

  set(key, data) {
    const chart = charts.all.get(key);
    chart.data = data;
    chart.plot.setData(data);
    charts.rest(chart);
  },

  redraw() {
    for (const chart of charts.all.values()) charts.draw(chart);
  },

  resize() {
    for (const chart of charts.all.values()) {
      const width = Math.max(200, chart.place.clientWidth);
      if (Math.abs(chart.plot.width - width) > 1) charts.draw(chart);
    }
  },
};
document.addEventListener("truetail-theme", charts.redraw);
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(charts.resize, 120);
});
