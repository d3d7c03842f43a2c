// The graph of the clients: each coloured by a number, edges by weight (width) and last use (darkness).

import { choice, colours, element, inkOn, known, mixed, onWidth, seconds, shade, sharp, short, themes, Tooltip } from "./dom.js";

const QUANTITIES = [
  ["stale", "staleness", "steps behind its neighbours' newest models", short],
  ["loss", "loss", "loss of its newest steps", short],
  ["rate", "rate", "steps per second", short],
  ["distance", "distance", "distance of its model from the average", short],
  ["age", "age", "mean age of the models it averaged, in steps", short],
];

export class GraphView {
  constructor(container, model, open, { title = "Graph", height = 460 } = {}) {
    this.model = model;
    this.open = open;
    this.height = height;
    this.quantity = null;
    this.chosen = null;
    this.canvas = element("canvas", { tabindex: 0, role: "img", on: {
      keydown: (event) => this.key(event), pointermove: (event) => this.hover(event),
      pointerleave: () => { this.tooltip.hide(); }, click: (event) => this.click(event), blur: () => { this.chosen = null; this.draw(); },
    } });
    this.frame = element("div", { class: "canvas-frame" }, this.canvas);
    this.tools = element("div", { class: "tools" });
    this.legend = element("div", { class: "legend" });
    container.append(element("section", { class: "graph" },
      element("div", { class: "heading" }, element("h2", {}, title), this.tools), this.frame, this.legend));
    this.tooltip = new Tooltip(this.frame);
    const again = () => this.draw();
    const events = ["now", "events", "runs"];
    events.forEach((name) => model.addEventListener(name, again));
    themes.addEventListener("change", again);
    const width = onWidth(this.frame, again);
    this.destroy = () => {
      events.forEach((name) => model.removeEventListener(name, again));
      themes.removeEventListener("change", again);
      width();
      this.gone = true;
    };
    this.draw();
  }

  offer() {
    const columns = this.model.now?.columns ?? {};
    const there = QUANTITIES.filter(([name]) => !(name === "rate" && this.model.timeless) && (columns[name] ?? []).some(known));
    const names = there.map(([name]) => name).join();
    if (names === this.offered) return;
    this.offered = names;
    if (!there.some(([name]) => name === this.quantity)) {
      const settled = this.model.over && there.some(([name]) => name === "distance"); // nothing is stale any more
      const first = (this.model.isNode ? ["rate"] : ["stale", "age"]).find((wanted) => there.some(([name]) => name === wanted)); // live runs know no "stale"
      this.quantity = settled ? "distance" : first ?? there[0]?.[0] ?? null;
    }
    this.tools.replaceChildren(...(there.length
      ? [choice("colour:", there.map(([name, words]) => [name, words]), this.quantity, (name) => { this.quantity = name; this.draw(); })]
      : []));
  }

  values() {
    const values = this.model.now?.columns?.[this.quantity] ?? [];
    const there = values.filter((value, i) => known(value) && this.model.state(i) !== "lost"); // those are red
    if (!there.length) return { values, low: 0, high: 1 };
    const [low, high] = [there.reduce((a, b) => Math.min(a, b)), there.reduce((a, b) => Math.max(a, b))];
    return { values, low, high };
  }

  draw() {
    const graph = this.model.about.graph;
    if (this.gone || !this.frame.clientWidth) return;
    if (!graph || !graph.x?.length) {
      this.frame.replaceChildren(element("p", { class: "note" }, "The graph of this run is not recorded."));
      return;
    }
    this.offer();
    const width = this.frame.clientWidth;
    const height = Math.min(this.height, Math.max(280, width));
    const c = colours();
    const context = sharp(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    const n = graph.x.length;
    const form = `${n} ${width} ${height}`;
    if (form !== this.form || graph !== this.before) {
      this.places = placed(graph, width, height, this.model.isNode ? 44 : 26);
      this.radius = Math.max(2, Math.min(17, 0.42 * nearest(this.places)));
      [this.form, this.before] = [form, graph];
    }
    this.drawEdges(context, c, graph);
    this.drawClients(context, c);
    this.describe();
  }

  drawEdges(context, c, graph) {
    const ages = this.ages(graph);
    const there = ages.filter(known).sort((a, b) => a - b);
    const middle = there.length ? Math.max(there[there.length >> 1], 1e-12) : null;
    const given = this.model.now?.weights ?? graph.weights; // a node's are those of now
    const weights = (given ?? []).filter(known);
    const heaviest = weights.reduce((a, b) => Math.max(a, b), 1e-12);
    const alike = weights.reduce((a, b) => Math.min(a, b), heaviest) > 0.9 * heaviest;
    const widest = (alike ? 0.5 : 1) * (this.radius > 6 ? 5 : 2.5);
    const drawn = new Map();
    graph.edges.forEach(([i, k], place) => {
      const key = i < k ? i * 1e7 + k : k * 1e7 + i;
      const weight = given?.[place];
      const before = drawn.get(key);
      const one = { i, k, age: ages[place], weight: known(weight) ? weight : null };
      if (!before) drawn.set(key, one);
      else {
        if (known(one.age) && (!known(before.age) || one.age < before.age)) before.age = one.age;
        before.weight = Math.max(before.weight ?? 0, one.weight ?? 0) || null;
      }
    });
    for (const { i, k, age, weight } of drawn.values()) {
      const [one, other] = [this.places[i], this.places[k]];
      if (!one || !other) continue;
      const away = this.model.state(i) === "lost" || this.model.state(k) === "lost";
      const fresh = middle === null || !known(age) ? 0.45 : 0.12 + 0.78 * Math.exp(-age / (4 * middle));
      context.strokeStyle = mixed(c.ground, c.text, away ? 0.12 : fresh * 0.8);
      context.lineWidth = weight === null ? 1 : Math.max(0.6, widest * (weight / heaviest));
      context.setLineDash(away ? [3, 4] : []);
      context.beginPath();
      context.moveTo(...one);
      context.lineTo(...other);
      context.stroke();
    }
    context.setLineDash([]);
  }

  ages(graph) {
    const since = this.model.now?.edges?.since ?? [];
    const now = this.model.now?.time;
    return graph.edges.map((_, place) => (known(since[place]) && known(now) ? Math.max(0, now - since[place]) : null));
  }

  drawClients(context, c) {
    const { values, low, high } = this.values();
    const wide = high > low ? high - low : 1;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${Math.max(9, Math.min(13, this.radius))}px system-ui, sans-serif`;
    this.places.forEach(([x, y], i) => {
      const lost = this.model.state(i) === "lost";
      const value = values[i];
      const share = known(value) ? (value - low) / wide : null;
      context.beginPath();
      context.arc(x, y, this.radius, 0, 2 * Math.PI);
      const ground = lost ? c.lost : share === null ? c.card : shade(share);
      context.fillStyle = ground;
      context.fill();
      context.lineWidth = this.chosen === i ? 3.5 : 1;
      context.strokeStyle = this.chosen === i ? c.link : c.soft;
      context.stroke();
      if (this.radius >= 9) {
        context.fillStyle = inkOn(ground);
        context.fillText(lost ? "✕" : this.model.isNode ? "" : i, x, y + 0.5);
      } else if (lost) {
        context.fillStyle = c.lost;
        context.fillText("✕", x, y);
      }
      if (this.model.isNode) this.drawName(context, c, i, x, y);
    });
    this.drawLegend(low, high);
  }

  // Below its circle, or above where there is no room.
  drawName(context, c, i, x, y) {
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const half = context.measureText(this.model.label(i)).width / 2 + 2;
    context.fillStyle = this.model.state(i) === "lost" ? c.lost : c.text;
    const below = y + this.radius + 12;
    context.fillText(this.model.label(i), Math.min(Math.max(x, half), width - half), below < height - 4 ? below : y - this.radius - 10);
  }

  drawLegend(low, high) {
    const found = QUANTITIES.find(([name]) => name === this.quantity);
    const text = found ? `${found[2]}: ${found[3](low)}` : "";
    const key = `${this.quantity} ${low} ${high} ${shade(0)}`;
    if (key === this.written) return;
    this.written = key;
    const bar = element("canvas", { class: "bar", "aria-hidden": "true" });
    const context = sharp(bar, 120, 10);
    for (let k = 0; k < 120; k++) {
      context.fillStyle = shade(k / 119);
      context.fillRect(k, 0, 1, 10);
    }
    this.legend.replaceChildren(
      ...(found ? [element("span", {}, text), bar, element("span", {}, found[3](high))] : []),
      element("span", {}, element("span", { class: "key lost", "aria-hidden": "true" }), "✕ lost"),
      element("span", {}, `edges: wide = more weight, strong = used lately, dashed = to a lost ${this.model.isNode ? "node" : "client"}`));
  }

  describe() {
    const { low, high } = this.values();
    const words = QUANTITIES.find(([name]) => name === this.quantity);
    const lost = this.model.lost();
    this.canvas.setAttribute("aria-label",
      `Graph of ${this.places.length} ${this.model.isNode ? "nodes" : "clients"} with ${this.model.about.graph.edges.length / 2} edges.` +
      (words ? ` Colour is ${words[2]}, from ${words[3](low)} to ${words[3](high)}.` : "") +
      (lost.length ? ` Lost: ${lost.slice(0, 10).map((i) => this.model.label(i)).join(", ")}.` : "") + " Arrows choose a client, Enter opens its page.");
  }

  // --- choosing ------------------------------------------------------------------------------------

  at(event) {
    let best = null;
    let nearest = (this.radius + 6) ** 2;
    (this.places ?? []).forEach(([x, y], i) => {
      const away = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (away < nearest) [best, nearest] = [i, away];
    });
    return best;
  }

  hover(event) {
    const i = this.at(event);
    this.canvas.classList.toggle("over", i !== null);
    if (i === null) this.tooltip.hide();
    else this.tooltip.show(event.offsetX, event.offsetY, this.lines(i));
  }

  lines(i) {
    const columns = this.model.now?.columns ?? {};
    const found = [`${this.model.called(i)}${this.model.word(i) ? ` (${this.model.word(i)})` : ""}`];
    if (known(columns.c?.[i])) found.push(`step ${columns.c[i]}`);
    for (const [name, words] of QUANTITIES) if (known(columns[name]?.[i])) found.push(`${words} ${short(columns[name][i])}`);
    const waits = columns.waiting?.[i];
    if (known(waits) && !this.model.timeless && !(this.model.isNode && i > 0)) found.push(`waited ${seconds(waits)}`);
    return found;
  }

  click(event) {
    const i = this.at(event);
    if (i !== null) this.open(i);
  }

  key(event) {
    const towards = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter" && this.chosen !== null) this.open(this.chosen);
    if (!towards || !this.places?.length) return;
    event.preventDefault();
    if (this.chosen === null) this.chosen = 0;
    else this.chosen = this.next(this.chosen, towards);
    this.draw();
    this.tooltip.show(...this.places[this.chosen], this.lines(this.chosen));
  }

  // The nearest client in that direction; sideways counts twice.
  next(from, [dx, dy]) {
    const [x, y] = this.places[from];
    let best = from;
    let nearest = Infinity;
    this.places.forEach(([a, b], i) => {
      const ahead = (a - x) * dx + (b - y) * dy;
      const aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (i !== from && ahead > 1e-6 && ahead + 2 * aside < nearest) [best, nearest] = [i, ahead + 2 * aside];
    });
    return best;
  }
}

// How far clients are from those nearest to them, as a rule (the lower quartile of up to 400 of them).
function nearest(places) {
  const every = Math.ceil(places.length / 400);
  const found = places.filter((_, i) => i % every === 0).map(([x, y]) => {
    let best = Infinity;
    for (const [a, b] of places) {
      const away = (a - x) ** 2 + (b - y) ** 2;
      if (away > 0 && away < best) best = away;
    }
    return Math.sqrt(best);
  });
  found.sort((a, b) => a - b);
  return Math.min(60, found[found.length >> 2] ?? 60);
}

function placed({ x, y }, width, height, margin) {
  const range = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  const [[left, right], [low, high]] = [range(x), range(y)];
  const scale = Math.min((width - 2 * margin) / (right - left || 1), (height - 2 * margin) / (high - low || 1));
  const [cx, cy] = [(left + right) / 2, (low + high) / 2];
  return x.map((value, i) => [width / 2 + (value - cx) * scale, height / 2 - (y[i] - cy) * scale]);
}
