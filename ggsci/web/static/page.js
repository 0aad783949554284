// Keeps an open page true: every few seconds the parts marked data-live are taken anew from the server, which draws
// them, and the charts get the samples since the last. When no answer comes, the page says so at once: nothing old is
// left standing as if it were new.
"use strict";
(() => {
  const body = document.body;
  const every = Number(body.dataset.every) * 1000;
  const minutes = Number(body.dataset.minutes);
  const panels = [...document.querySelectorAll("[data-keys]")].map(makePanel).filter((panel) => panel.keys.length);
  let last = 0;
  let lastGood = Date.now();

  // What a page fetches by itself says so: it does not keep a session open that nobody uses.
  function ask(address) {
    return fetch(address, { cache: "no-store", headers: { "X-Trailgate-Poll": "1" }, signal: AbortSignal.timeout(every * 3) });
  }

  // --- the drawing ---

  async function redraw() {
    const answer = await ask(location.href);
    if (answer.status === 401) return location.reload(); // the session is over: the page that asks for the token
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const ids = (doc) => [...doc.querySelectorAll("[data-keys]")].map((one) => `${one.id} ${one.dataset.keys}`).join("|");
    if (ids(fresh) !== ids(document)) return location.reload();
    if (document.querySelector("a:active")) return; // somebody is just clicking
    // Read out once it changes: this element stays, only its text is another.
    const spoken = document.getElementById("spoken"), said = fresh.getElementById("spoken");
    if (spoken && said && spoken.textContent !== said.textContent) spoken.textContent = said.textContent;
    const focused = document.activeElement?.getAttribute("href");
    for (const part of document.querySelectorAll("[data-live]")) {
      const newer = fresh.getElementById(part.id);
      if (!newer || newer.outerHTML === part.outerHTML) continue;
      const had = focused && part.contains(document.activeElement);
      part.replaceWith(document.adoptNode(newer));
      showTimes(newer.parentNode);
      if (had) newer.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
  }

  // --- the charts ---

  function makePanel(section) {
    const keys = section.dataset.keys.split(" ").filter(Boolean);
    return { keys, box: section.querySelector(".charts"), series: Object.fromEntries(keys.map((key) => [key, empty()])), plots: [] };
  }

  function empty() {
    return { at: [], lag: [], rate: [], backlog: [], kept: [] };
  }

  async function extend() {
    if (!panels.length || typeof uPlot === "undefined") return;
    const query = new URLSearchParams({ minutes, since: last });
    const keys = new Set(panels.flatMap((panel) => panel.keys));
    if (keys.size <= 20) for (const key of keys) query.append("key", key); // an address has its bounds; without, all come
    const answer = await ask(`/api/history.json?${query}`);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const { now, series } = await answer.json();
    for (const panel of panels) {
      for (const key of panel.keys) append(panel.series[key], series[key] ?? empty(), now - minutes * 60);
    }
    last = Math.max(last, ...Object.values(series).map((one) => one.at.at(-1) ?? 0));
    for (const panel of panels) draw(panel, now);
  }

  function append(old, more, from) {
    const first = old.at.findIndex((at) => at >= from);
    const drop = first < 0 ? old.at.length : first;
    for (const name of Object.keys(old)) {
      old[name].splice(0, drop);
      old[name].push(...more[name]);
    }
  }

  // Whose lines a chart has: a slot is an Extract's alone, and nobody else's is "unknown".
  function shown(panel, figure) {
    const has = (key) => panel.series[key].kept.some((value) => value != null);
    return figure === "kept" ? panel.keys.filter(has) : panel.keys;
  }

  function table(panel, figure) {
    const tables = shown(panel, figure).map((key) => [panel.series[key].at, panel.series[key][figure]]);
    if (!tables.length) return [[]];
    return tables.length > 1 ? uPlot.join(tables) : tables[0];
  }

  const units = {
    lag: (value) => (value < 120 ? `${trim(value)} s` : value < 7200 ? `${trim(value / 60)} min` : `${trim(value / 3600)} h`),
    rate: (value) => (value >= 1e6 ? `${trim(value / 1e6)} M` : value >= 1e4 ? `${trim(value / 1e3)} k` : trim(value)),
    backlog: (value) => {
      const names = ["B", "KB", "MB", "GB", "TB"];
      let i = 0;
      for (; Math.abs(value) >= 1024 && i < names.length - 1; i++) value /= 1024;
      return `${trim(value)} ${names[i]}`;
    },
  };

  units.kept = units.backlog;

  // Bytes are counted in powers of two, so their axis is too.
  const powers = Array.from({ length: 45 }, (_, power) => 2 ** power);
  const steps = { backlog: powers, kept: powers };

  function said(unit, value) {
    return value == null ? "unknown" : unit(value);
  }

  function trim(value) {
    return String(Number(value.toPrecision(3)));
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colourOf(panel, key) {
    return colour(`--c${panel.keys.indexOf(key) % 6}`);
  }

  function draw(panel, now) {
    panel.box.hidden = false;
    const x = { min: span(panel, now), max: now };
    for (const figure of panel.box.querySelectorAll("[data-chart]")) {
      const name = figure.dataset.chart;
      const data = table(panel, name);
      let plot = panel.plots.find((one) => one.name === name);
      if (plot && plot.chart.series.length !== data.length) {
        plot.chart.destroy();
        panel.plots.splice(panel.plots.indexOf(plot), 1);
        plot = undefined;
      }
      if (plot) {
        plot.chart.setData(data, false);
        plot.chart.setScale("x", x);
        if (plot.chart.cursor.idx == null) plot.chart.setLegend({ idx: null });
      } else {
        panel.plots.push({ name, figure, chart: makeChart(panel, figure, name, data, x) });
      }
    }
  }

  // From the first sample on, while there are not so many minutes of them yet.
  function span(panel, now) {
    const first = Math.min(...panel.keys.map((key) => panel.series[key].at[0] ?? now));
    return Math.max(now - minutes * 60, Math.min(first, now - 60));
  }

  function makeChart(panel, figure, name, data, x) {
    const unit = units[name];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      tzDate: (at) => (timeZone() ? uPlot.tzDate(new Date(at * 1000), timeZone()) : new Date(at * 1000)),
      width: width(figure), height: 140, padding: [8, 18, 0, 0], cursor: { y: false, points: { size: 6 } },
      legend: { live: true, markers: { width: 0, fill: (_, number) => colourOf(panel, shown(panel, name)[number - 1]) } },
      scales: { x: { time: true, min: x.min, max: x.max }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, name === "lag" ? 1 : name === "rate" ? 10 : 1024) * 1.1] } },
      axes: [{ ...axis, size: 26, space: 60, values: times }, { ...axis, size: 62, space: 28, incrs: steps[name], values: (_, splits) => splits.map(unit) }],
      series: [
        { value: (_, at) => (at == null ? "–" : clock(at)) },
        ...shown(panel, name).map((key) => ({
          label: key.split("/").at(-1), stroke: colourOf(panel, key), width: 1.6, spanGaps: false,
          points: { show: false },
          value: (plot, value, index, at) => said(unit, at == null ? plot.data[index]?.at(-1) : value),
        })),
      ],
    };
    return new uPlot(options, data, figure);
  }

  function times(_, splits) {
    return splits.map((at) => clock(at, { hour: "2-digit", minute: "2-digit" }));
  }

  function clock(at, parts = { timeStyle: "medium" }) {
    return new Date(at * 1000).toLocaleTimeString("en-GB", { timeZone: timeZone(), ...parts });
  }

  function width(figure) {
    return Math.max(160, figure.clientWidth);
  }

  function again() {
    for (const panel of panels) {
      for (const plot of panel.plots) plot.chart.destroy();
      panel.plots = [];
      draw(panel, Date.now() / 1000);
    }
  }

  // --- the clockwork ---

  const offline = document.getElementById("offline");

  function tell(error) {
    if (error === null) {
      lastGood = Date.now();
      offline.hidden = true;
      body.classList.remove("stale");
      return;
    }
    offline.textContent = `No answer since ${clock(lastGood / 1000)} (${error.message}). What stands below was true then; what is true now is UNKNOWN.`;
    offline.hidden = false;
    body.classList.add("stale");
  }

  let turning = false;

  async function turn() {
    if (turning || document.hidden) return;
    turning = true;
    try {
      await redraw();
      await extend();
      tell(null);
    } catch (error) {
      tell(error);
    }
    turning = false;
  }

  extend().catch(tell);
  setInterval(turn, every);
  document.addEventListener("visibilitychange", turn);
  document.addEventListener("themechange", again);
  new ResizeObserver(() => {
    for (const panel of panels) for (const plot of panel.plots) {
      if (plot.chart.width !== width(plot.figure)) plot.chart.setSize({ width: width(plot.figure), height: 140 });
    }
  }).observe(document.querySelector("main"));
})();
