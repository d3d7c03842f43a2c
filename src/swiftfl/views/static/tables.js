// Tables: clients, one client, events, refusals, configuration, partition, versions, runs.

import { colours, count, element, inkOn, known, onWidth, percent, seconds, sharp, shade, short, sum, themes, Tooltip } from "./dom.js";

export function table(title, columns, rows, { numeric = null, state = null } = {}) {
  const right = numeric ?? columns.map((_, k) => k > 0 && rows.length > 0 && rows.every((row) => typeof row[k] === "string" && /^[−\d–<.]/.test(row[k])));
  const made = element("div", { class: "scroll", role: "region", "aria-label": title, tabindex: 0 },
    element("table", {}, element("caption", { class: "hidden" }, title),
      element("thead", {}, element("tr", {}, columns.map((name, k) => element("th", { scope: "col", class: right[k] ? "n" : null }, name)))),
      element("tbody", {}, rows.map((row, at) => element("tr", { class: state?.(at) ?? null }, row.map((cell, k) => (
        element(k ? "td" : "th", { scope: k ? null : "row", class: right[k] ? "n" : null }, cell ?? "–"))))))));
  const hint = () => made.classList.toggle("more", made.scrollLeft + made.clientWidth < made.scrollWidth - 1);
  made.addEventListener("scroll", hint);
  new ResizeObserver(hint).observe(made);
  return made;
}

// Redraws a part of the page whenever the model says that something has changed.
export class Part {
  constructor(container, model, events, make) {
    this.place = element("div", {});
    container.append(this.place);
    this.again = () => {
      const kept = this.place.querySelector(".scroll");
      const [left, top] = [kept?.scrollLeft ?? 0, kept?.scrollTop ?? 0];
      if (this.place.contains(document.activeElement) && document.activeElement !== kept) return;
      this.place.replaceChildren(...[make()].flat());
      const now = this.place.querySelector(".scroll");
      if (now) [now.scrollLeft, now.scrollTop] = [left, top];
    };
    this.model = model;
    this.events = events;
    events.forEach((name) => model.addEventListener(name, this.again));
    this.again();
  }

  destroy() {
    this.events.forEach((name) => this.model.removeEventListener(name, this.again));
  }
}

// --- clients ---------------------------------------------------------------------------------------

const COLUMNS = [
  ["state", "state", (v) => v], ["c", "step", count], ["rate", "steps/s", short], ["loss", "loss", short],
  ["stale", "staleness", short], ["age", "age", short], ["compute", "computes", null], ["communication", "communicates", null],
  ["waiting", "waits", null], ["weight", "weight", short], ["old", "age of its model", seconds],
  ["refused", "refused", count], ["discarded", "discarded", count], ["distance", "distance", short],
];

const TIMES = new Set(["rate", "compute", "communication", "waiting"]);

// What a run has of its clients; where nothing takes time, no times.
function columnsOf(model) {
  return COLUMNS.filter(([name]) => !(model.timeless && TIMES.has(name)));
}

// Of a node's neighbours it is not known how they spend their time; zeros would say something else.
function asKnown(columns, model) {
  Object.assign(columns, model.ofNeighbours());
  for (const name of ["compute", "communication", "waiting", "discarded"]) columns[name] = columns[name]?.map((value, i) => (i ? null : value));
  for (const name of ["c", "rate"]) columns[name] = columns[name]?.map((value, i) => (i ? value || null : value));
}

export class ClientsView {
  constructor(container, model) {
    this.model = model;
    this.by = null;
    this.down = false;
    this.part = new Part(container, model, ["now"], () => this.make());
  }

  destroy() {
    this.part.destroy();
  }

  make() {
    const columns = this.model.now?.columns && { ...this.model.now.columns };
    if (columns?.state) columns.state = columns.state.map((_, i) => this.model.word(i));
    if (!columns?.state) return element("p", { class: "note" }, "Nothing is recorded of single clients.");
    const n = columns.state.length;
    if (this.model.isNode) asKnown(columns, this.model);
    const there = columnsOf(this.model).filter(([name]) => (columns[name] ?? []).some((value) => value !== null && value !== undefined));
    const whole = Array.from({ length: n }, (_, i) => sum(["compute", "communication", "waiting"].map((name) => columns[name]?.[i])));
    const value = (name, i) => (["compute", "communication", "waiting"].includes(name) && whole[i] > 0 ? columns[name][i] / whole[i] : columns[name][i]);
    const order = Array.from({ length: n }, (_, i) => i);
    if (this.by) {
      const sign = this.down ? -1 : 1;
      const key = (i) => value(this.by, i) ?? -Infinity;
      order.sort((a, b) => sign * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) || a - b);
    }
    const shown = order.slice(0, 500);
    const head = (name, words) => element("button", { type: "button", class: "sort", "data-by": name ?? "",
      "aria-label": `sort by ${words}`, on: { click: () => this.sort(name) } }, words, this.by === name ? (this.down ? " ▾" : " ▴") : "");
    const rows = shown.map((i) => [
      element("a", { href: `#/run/${encodeURIComponent(this.model.id)}/client/${i}` }, this.model.label(i)),
      ...there.map(([name, , write]) => (write ? write(value(name, i)) : percent(value(name, i))))]);
    const [title, who] = this.model.isNode ? ["Nodes", "node"] : ["Clients", "client"];
    const made = table(title, [head(null, who), ...there.map(([name, words]) => head(name, words))], rows,
      { numeric: [!this.model.isNode, ...there.map(([name]) => name !== "state")], state: (at) => (this.model.state(shown[at]) === "lost" ? "lost" : null) });
    return [made, ...(n > shown.length ? [element("p", { class: "note" }, `The first ${shown.length} of ${count(n)}; sort to see others.`)] : [])];
  }

  sort(name) {
    this.down = this.by === name ? !this.down : name !== null;
    this.by = name;
    document.activeElement?.blur();
    this.part.again();
    this.part.place.querySelector(`[data-by="${name ?? ""}"]`)?.focus();
  }
}

export class ClientView {
  constructor(container, model, i) {
    this.model = model;
    this.i = i;
    this.place = element("div", {});
    container.append(this.place);
    this.again = () => this.load();
    model.addEventListener("now", this.again);
    this.load();
  }

  destroy() {
    this.model.removeEventListener("now", this.again);
  }

  async load() {
    if (this.busy || this.place.contains(document.activeElement)) return;
    this.busy = true;
    try {
      this.show(await this.model.source.client(this.model.id, this.i));
    } catch (error) {
      this.place.replaceChildren(element("p", { class: "note" }, error.message));
    } finally {
      this.busy = false;
    }
  }

  show({ neighbours, rows, events, left = false }) {
    const { i, model } = this;
    const columns = { ...model.now?.columns };
    if (columns.state) columns.state = columns.state.map((_, k) => model.word(k));
    if (model.isNode) asKnown(columns, model);
    const numbers = columnsOf(model).filter(([name]) => columns[name] && columns[name][i] !== null && columns[name][i] !== undefined)
      .map(([name, words, write]) => [words, write ? write(columns[name][i]) : seconds(columns[name][i])]);
    const steps = rows.slice(-60).reverse();
    this.place.replaceChildren(
      element("h2", { class: model.state(i) === "lost" ? "lost" : null }, `${model.isNode ? model.label(i) : `Client ${i}`}${model.word(i) ? `: ${model.word(i)}` : ""}`),
      numbers.length ? table("Numbers", ["", "now"], numbers, { numeric: [false, true] }) : "",
      element("h3", {}, "Neighbours"),
      neighbours.length ? table("Neighbours", [model.isNode ? "node" : "client", "weight", "its newest model", "since"], neighbours.map((one) => [
        element("a", { href: `#/run/${encodeURIComponent(model.id)}/client/${one.client}` }, model.label(one.client)),
        short(one.weight), known(one.version) ? `step ${count(one.version)}` : "–", model.duration(one.since)])) : element("p", {}, "It has none."),
      element("h3", {}, "Newest steps"),
      steps.length ? table("Newest steps", ["step", "from", "computes", "waits", "communicates", "loss", "age"], steps.map((row) => [
        count(row.c) + (row.steps > 1 ? ` (${row.steps} steps)` : ""), ...[row.start, row.compute, row.waiting, row.communication].map((time) => model.duration(time)),
        short(row.loss), short(row.age)])) : element("p", { class: "note" },
        model.isNode && i > 0 ? "A node does not know what its neighbours do." : left ? "This run has more steps than a report holds: single ones are in the dashboard." : "No steps are recorded."),
      element("h3", {}, "Events"), eventsTable(events, model));
  }
}

// --- events and refusals -----------------------------------------------------------------------------

function eventsTable(events, model) {
  if (!events.length) return element("p", { class: "note" }, "Nothing happened.");
  const rows = events.slice(-1000).reverse().map(({ event, time, client, iteration, ...more }) => [
    model.timeless ? "–" : seconds(time), event, client === undefined || client === null ? "" : model.called(client), known(iteration) ? count(iteration) : "",
    Object.entries(more).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ")]);
  return table("Events", ["time", "event", "who", model.isNode ? "steps" : "client steps", "more"], rows, { numeric: [true, false, false, true, false],
    state: (at) => (["lost", "crash", "failed", "diverged"].includes(rows[at][1]) ? "lost" : null) });
}

export function eventsPart(container, model) {
  return new Part(container, model, ["events"], () => [element("h2", {}, "Events"), eventsTable(model.events, model)]);
}

export function refusalsPart(container, model) {
  return new Part(container, model, ["now"], () => {
    const columns = model.now?.columns ?? {};
    const named = [["refused", "models that were refused (damaged, or not finite)"], ["discarded", "own steps that were discarded (not finite)"]];
    const rows = named.filter(([name]) => columns[name]).map(([name, words]) => {
      const who = columns[name].map((value, i) => [value, i]).filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]);
      return [words, count(sum(columns[name])), who.slice(0, 8).map(([value, i]) => `${model.called(i)}: ${value}`).join(", ") || "nobody"];
    });
    return [element("h2", {}, "Refused messages"), rows.length ? table("Refused messages", ["", "in all", "whose"], rows, { numeric: [false, true, false] })
      : element("p", { class: "note" }, "Not recorded.")];
  });
}

// --- configuration, versions ---------------------------------------------------------------------------

function flat(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [[prefix, value]];
  return Object.entries(value).flatMap(([name, inner]) => flat(inner, prefix ? `${prefix}.${name}` : name));
}

export function configurationPart(container, model) {
  const find = element("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting", on: { input: () => fill() } });
  const place = element("div", {});
  const all = flat(model.about.config ?? {});
  const fill = () => {
    const wanted = find.value.toLowerCase();
    const rows = all.filter(([name, value]) => `${name} ${JSON.stringify(value)}`.toLowerCase().includes(wanted))
      .map(([name, value]) => [element("code", {}, name), value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value)]);
    place.replaceChildren(table("Configuration", ["setting", "value"], rows, { numeric: [false, false] }));
  };
  fill();
  container.append(element("div", { class: "heading" }, element("h2", {}, "Configuration"), element("div", { class: "tools" }, find)), place,
    element("h2", {}, "Versions"), table("Versions", ["", "version"], Object.entries(model.about.versions ?? {}).map(([a, b]) => [a, String(b)]), { numeric: [false, false] }));
  const summary = flat(model.about.summary ?? {}).filter(([, value]) => value !== null && (typeof value !== "object"));
  if (summary.length) {
    container.append(element("h2", {}, "At the end"), table("Summary", ["", "value"], summary.map(([name, value]) => [
      name, typeof value === "number" ? short(value, 6) : String(value)]), { numeric: [false, true] }));
  }
}

// --- partition -------------------------------------------------------------------------------------------

export class PartitionView {
  constructor(container, model) {
    this.partition = model.about.partition;
    container.append(element("h2", {}, "Data"));
    const sizes = this.partition?.sizes;
    const rows = this.partition?.histogram;
    const counts = (values) => Array.isArray(values) && values.length > 0 && values.every(known);
    if (!counts(sizes) || (rows && !(Array.isArray(rows) && rows.length && rows.every((row) => counts(row) && row.length === rows[0].length)))) {
      container.append(element("p", { class: "note" }, "How the data were divided is not recorded."));
      return;
    }
    const [least, most] = [sizes.reduce((a, b) => Math.min(a, b)), sizes.reduce((a, b) => Math.max(a, b))];
    const text = `Partition ${this.partition.partition}: ${count(sizes.length)} clients hold ${count(least)} to ${count(most)} samples.`;
    container.append(element("p", { class: "summary" }, text));
    this.histogram = this.partition.histogram ?? sizes.map((size) => [size]);
    this.classes = this.histogram[0].length;
    this.canvas = element("canvas", { role: "img", "aria-label": `${text} Rows are clients, columns classes; the stronger, the more.` });
    this.frame = element("div", { class: "canvas-frame narrow" }, this.canvas);
    container.append(this.frame, element("p", { class: "note" }, this.partition.histogram
      ? "Rows are clients, columns classes; the stronger the colour, the more samples." : "Rows are clients; the stronger the colour, the more samples."));
    this.tooltip = new Tooltip(this.frame);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    this.again = () => this.draw();
    themes.addEventListener("change", this.again);
    this.stop = onWidth(this.frame, this.again);
    this.draw();
  }

  destroy() {
    this.stop?.();
    themes.removeEventListener("change", this.again);
  }

  draw() {
    const n = this.histogram.length;
    const width = this.frame.clientWidth;
    if (!width) return;
    const [left, top] = [40, 20];
    const height = Math.min(560, Math.max(60, n * 18));
    const context = sharp(this.canvas, width, height + top + 4);
    const c = colours();
    const most = this.histogram.reduce((a, row) => Math.max(a, ...row), 1);
    const wide = (width - left) / this.classes;
    const tall = height / n;
    this.at = (x, y) => [Math.floor((y - top) / tall), Math.floor((x - left) / wide)];
    this.histogram.forEach((row, i) => row.forEach((value, k) => {
      const ground = value ? shade(value / most) : c.ground;
      context.fillStyle = ground;
      context.fillRect(left + k * wide, top + i * tall, wide - (wide > 6 ? 1 : 0), tall - (tall > 5 ? 1 : 0));
      if (wide > 34 && tall >= 15 && value) {
        context.fillStyle = inkOn(ground);
        context.font = "11px system-ui, sans-serif";
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText(value, left + (k + 0.5) * wide, top + (i + 0.5) * tall);
      }
    }));
    context.fillStyle = c.soft;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    const classes = Math.ceil(26 / wide);
    if (this.partition.histogram) for (let k = 0; k < this.classes; k += classes) context.fillText(k, left + (k + 0.5) * wide, top / 2);
    context.textAlign = "right";
    const clients = Math.ceil(16 / tall);
    for (let i = 0; i < n; i += clients) context.fillText(i, left - 8, top + (i + 0.5) * tall);
  }

  hover(event) {
    const [i, k] = this.at(event.offsetX, event.offsetY);
    const value = this.histogram[i]?.[k];
    if (value === undefined) this.tooltip.hide();
    else this.tooltip.show(event.offsetX, event.offsetY, [`client ${i}`, ...(this.partition.histogram ? [`class ${k}`] : []), `${count(value)} samples`]);
  }
}
