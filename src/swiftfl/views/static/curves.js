// Curves, drawn by uPlot: what was measured of the consensus and of the clients.

import { choice, colours, element, known, onWidth, short, themes } from "./dom.js";

const AXES = [["time", "time (s)"], ["iteration", "client steps"], ["epoch", "epochs"]];
const KNOWN = new Set([
  "time", "iteration", "epoch", "loss", "accuracy", "mean_client_loss", "mean_client_accuracy", "train_loss", "consensus_distance",
]);
const HIDDEN = new Set(["models_in_memory", "evaluation_seconds"]);
export const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

// What curves of these runs may be drawn over, with its label: [[name, label]...]; no time where one has none.
export function axesOf(models) {
  return AXES.filter(([name]) => name !== "time" || !models.some((model) => model.timeless)).map(([name]) => [name, axisLabel(name, models)]);
}

export function axisLabel(axis, models) {
  if (axis !== "time") return AXES.find(([name]) => name === axis)[1];
  const virtual = models.filter((model) => model.clock === "virtual").length;
  return virtual === 0 ? "time (s)" : virtual === models.length ? "virtual time (s)" : "virtual or real time (s)";
}

// One chart. `lines`: [{label, x, y, colour, dash, width, low, high, points}]; values that are not numbers are gaps.
export class Chart {
  constructor(container, { title, height = 240, xLabel = "", percentages = false, sync = null, log = false, zero = false, onClick = null, level = null }) {
    this.options = { title, height, xLabel, percentages, sync, log, zero, onClick, level };
    this.lines = [];
    this.frame = element("div", { class: "chart" });
    this.section = element("section", { class: "curve" }, element("h3", {}, title), this.frame);
    container.append(this.section);
    this.stop = onWidth(this.frame, () => this.plot?.setSize({ width: this.frame.clientWidth, height }));
    this.again = () => this.rebuild();
    themes.addEventListener("change", this.again);
  }

  destroy() {
    this.stop();
    themes.removeEventListener("change", this.again);
    this.plot?.destroy();
  }

  set(lines, changes = {}) {
    Object.assign(this.options, changes);
    const form = JSON.stringify([lines.map((l) => [l.label, l.colour, Boolean(l.low)]), this.options.log, this.options.xLabel, this.options.title]);
    this.lines = lines;
    this.section.querySelector("h3").textContent = this.options.title;
    if (this.plot && form === this.form) this.plot.setData(joined(lines));
    else this.rebuild();
    this.form = form;
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    const { lines } = this;
    if (!lines.length || !lines.some((line) => line.x.length)) {
      this.frame.replaceChildren(element("p", { class: "note" }, "Nothing has been measured yet."));
      return;
    }
    this.frame.replaceChildren();
    this.plot = new uPlot(this.settings(lines), joined(lines), this.frame);
    if (this.options.onClick) {
      this.plot.over.addEventListener("click", (event) => {
        this.options.onClick(this.plot.posToVal(event.offsetY, "y"));
      });
      this.plot.over.classList.add("over");
    }
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", `${this.options.title}: ${lines.filter((l) => l.label).map((l) => `${l.label} ends at ${short(last(l.y))}`).join(", ")}`);
  }

  settings(lines) {
    const c = colours();
    const axis = { stroke: c.soft, grid: { stroke: c.line, width: 1 }, ticks: { stroke: c.line, width: 1 }, font: "12px system-ui, sans-serif" };
    const format = (value) => (this.options.percentages && known(value) ? `${short(value, 3)} %` : short(value, 5));
    const series = [{ label: this.options.xLabel, value: (_, value) => short(value, 5) }];
    const bands = [];
    const few = (line) => line.y.filter(known).length < 2;
    for (const line of lines) {
      series.push({
        label: line.label, stroke: line.colour, width: line.width ?? 2, dash: line.dash ?? [], spanGaps: true,
        points: { show: few(line) || Boolean(line.points), size: 6 }, value: (_, value) => format(value),
      });
      if (line.low) {
        const at = series.length;
        for (const label of ["low", "high"]) {
          series.push({ label: `${line.label}, ${label}`, class: "band", stroke: "transparent", spanGaps: true, points: { show: false }, value: (_, v) => format(v) });
        }
        bands.push({ series: [at + 1, at], fill: faint(line.colour) });
      }
    }
    const logarithmic = this.options.log && positive(lines);
    return {
      width: Math.max(200, this.frame.clientWidth), height: this.options.height, series, bands,
      scales: { x: { time: false }, y: logarithmic ? { distr: 3, range: (_, low, high) => (low > 0 ? [low / 1.15, high * 1.15] : [0.1, 1]) }
        : this.options.zero ? { range: (_, low, high) => [0, high > 0 ? 1.05 * high : 1] } : {} },
      axes: [
        { ...axis, label: this.options.xLabel, labelSize: 18, labelFont: "12px system-ui, sans-serif", size: 34, values: (_, values) => values.map((v) => (v === null ? "" : short(v, 6))) },
        { ...axis, ...(logarithmic ? { splits: (_, __, low, high) => decades(low, high), filter: (_, values) => values } : {}), size: 62, values: (_, values) => values.map((v) => (v === null ? "" : short(v, 4))) },
      ],
      cursor: { sync: this.options.sync ? { key: this.options.sync } : undefined, drag: { x: true, y: false }, y: Boolean(this.options.onClick) },
      legend: { live: true, markers: { width: 0, fill: (plot, k) => lineOf(plot, k) } },
      hooks: { draw: [(plot) => this.drawLevel(plot, c)] },
    };
  }

  // A horizontal line at the level that was chosen.
  drawLevel(plot, c) {
    const { level } = this.options;
    if (!known(level)) return;
    const y = Math.round(plot.valToPos(level, "y", true));
    if (!(y >= plot.bbox.top && y <= plot.bbox.top + plot.bbox.height)) return;
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = c.text;
    ctx.setLineDash([6, 4]);
    ctx.lineWidth = 1.5 * (window.devicePixelRatio || 1);
    ctx.beginPath();
    ctx.moveTo(plot.bbox.left, y);
    ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  mark(level) {
    this.options.level = level;
    this.plot?.redraw(false);
  }
}

// 1, 2 and 5 times the powers of ten within a range of positive numbers; of a wide range the powers alone.
function decades(low, high) {
  const wide = Math.log10(high / low);
  const factors = wide > 4 ? [1] : wide > 0.5 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(6));
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

function lineOf(plot, k) {
  const { stroke } = plot.series[k];
  return typeof stroke === "function" ? stroke(plot, k) : stroke;
}

function joined(lines) {
  const tables = lines.map((line) => {
    const order = line.x.map((_, k) => k).filter((k) => known(line.x[k]));
    const pick = (values) => order.map((k) => (known(values[k]) ? values[k] : null));
    return unique([pick(line.x), pick(line.y), ...(line.low ? [pick(line.low), pick(line.high)] : [])]);
  });
  return uPlot.join(tables);
}

// uPlot wants rising x: of equal ones the last counts, and one that falls (a clock set back) is left out.
function unique(table) {
  const keep = [];
  table[0].forEach((x, k) => {
    if (keep.length && x === table[0][keep.at(-1)]) keep[keep.length - 1] = k;
    else if (!keep.length || x > table[0][keep.at(-1)]) keep.push(k);
  });
  return table.map((column) => keep.map((k) => column[k]));
}

function positive(lines) {
  return lines.every((line) => [line.y, line.low ?? []].every((values) => values.every((value) => !known(value) || value > 0)));
}

function last(values) {
  for (let k = values.length - 1; k >= 0; k--) if (known(values[k])) return values[k];
  return null;
}

function faint(colour) {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.18)");
}

// --- the curves of one run -------------------------------------------------------------------------

export class CurvesView {
  constructor(container, model, { only = null } = {}) {
    this.model = model;
    this.only = only;
    this.axis = model.along;
    this.log = true;
    this.charts = new Map();
    this.grid = element("div", { class: "curves" });
    const box = element("input", { type: "checkbox", checked: true, on: { change: () => { this.log = box.checked; this.update(); } } });
    const tools = element("div", { class: "tools" },
      choice("over:", axesOf([model]), this.axis, (axis) => { this.axis = axis; this.update(); }),
      element("label", { class: "choice" }, box, " logarithmic loss"));
    container.append(element("section", {}, element("div", { class: "heading" }, element("h2", {}, "Curves"), tools), this.grid,
      only ? null : element("p", { class: "note" },
        `Drag to zoom in, double-click to zoom out.${model.isNode ? "" : " Bands are from the 10th to the 90th percentile of the clients."}`)));
    this.again = () => this.update();
    model.addEventListener("curves", this.again);
    this.update();
  }

  destroy() {
    this.model.removeEventListener("curves", this.again);
    this.charts.forEach((chart) => chart.destroy());
  }

  update() {
    const wanted = this.wanted();
    if (!wanted.length && !this.charts.size) {
      this.grid.replaceChildren(element("p", { class: "note" }, "Nothing has been measured yet."));
      return;
    }
    this.grid.querySelector(":scope > p")?.remove();
    for (const { key, title, lines, log = false, zero = false, percentages = false } of wanted) {
      const xLabel = axisLabel(this.axis, [this.model]);
      if (!this.charts.has(key)) this.charts.set(key, new Chart(this.grid, { title, xLabel, log, zero, percentages, sync: `run-${this.model.id}` }));
      this.charts.get(key).set(lines, { xLabel, log });
    }
  }

  wanted() {
    const { columns = {}, clients = null } = this.model.curves ?? {};
    const { series } = colours();
    const x = columns[this.axis] ?? [];
    const there = (name) => (columns[name] ?? []).some(known);
    const line = (name, label, k, more = {}) => (there(name) ? [{ label, x, y: columns[name], colour: series[k], dash: DASHES[k % 4], ...more }] : []);
    const hundred = (lines) => lines.map((one) => ({ ...one, y: one.y.map((value) => (known(value) ? 100 * value : null)) }));
    const steps = (name, label, k) => {
      const mean = clients?.[name] ?? [];
      if (!mean.some(known)) return [];
      return [{ label, x: clients[this.axis] ?? [], y: mean, colour: series[k], width: 1.5, low: clients[`${name}_low`], high: clients[`${name}_high`] }];
    };
    const node = this.model.isNode;
    const found = [
      { key: "loss", title: "Loss", log: this.log, lines: [
        ...line("loss", node ? "test, own model" : "test, consensus", 0), ...line("mean_client_loss", "test, mean of clients", 1),
        ...steps("loss", node ? "its batches" : "clients' batches", 2)] },
      { key: "accuracy", title: "Accuracy (%)", percentages: true, lines: hundred([
        ...line("accuracy", node ? "own model" : "consensus", 0), ...line("mean_client_accuracy", "mean of clients", 1)]) },
      ...Object.keys(columns).filter((name) => !KNOWN.has(name) && !HIDDEN.has(name) && there(name)).map((name) => (
        { key: name, title: name.replace(/^metrics\./, ""), lines: line(name, name.replace(/^metrics\./, ""), 0) })),
      { key: "consensus_distance", zero: true, title: "Distance of the models from their average", lines: line("consensus_distance", "root mean square", 3) },
      { key: "rate", zero: true, title: this.model.timeless ? "Steps of a client per iteration" : `Steps per second${node ? "" : " of a client"}`, lines: steps("rate", node ? "own" : "mean of clients", 4) },
      { key: "age", zero: true, title: "Age of the averaged models (steps)", lines: steps("age", node ? "mean" : "mean of clients", 5) },
    ];
    return found.filter(({ key, lines }) => lines.length && (!this.only || this.only.includes(key)));
  }
}
