// The stream: one row per client; what it does with its time, by colour; from the whole run to single steps.

import { button, count, element, onWidth, percent, seconds, short, themes, Tooltip } from "./dom.js";
import { legend, StreamPainter, TOP } from "./painting.js";
import { bytes } from "./source.js";

const WORDS = ["away", "computing", "communicating", "waiting"];
const CELLS = 400000; // rows times bins that are asked for at once
const WAIT = 60; // milliseconds without a movement before data are asked for
const MARKS = { lost: "a client is lost", back: "it returns", renewal: "weights are renewed" };

export class StreamView {
  constructor(container, model, { compact = false, end = null, title = "Stream" } = {}) {
    this.model = model;
    this.compact = compact;
    this.fixedEnd = end;
    this.picture = null;
    this.view = null; // {from, to, first, last}: what is shown; null until the first picture is there
    this.follow = true; // whether the view goes on with the run
    this.asked = 0;
    this.canvas = element("canvas", {
      tabindex: 0, role: "img",
      on: { keydown: (event) => this.key(event), dblclick: (event) => this.zoomAt(event, 0.4) },
    });
    this.frame = element("div", { class: "canvas-frame" }, this.canvas);
    this.summary = element("p", { class: "summary" });
    this.painter = new StreamPainter(this.canvas, model);
    this.place(container, title);
    this.tooltip = new Tooltip(this.frame);
    this.listen();
    this.ask(0);
  }

  place(container, title) {
    this.buttons = element("div", { class: "tools", role: "group", "aria-label": "zoom" },
      button("+", "zoom in (+)", () => this.zoom(0.5)),
      button("−", "zoom out (−)", () => this.zoom(2)),
      button("‹", "earlier (←)", () => this.pan(-0.4)),
      button("›", "later (→)", () => this.pan(0.4)),
      button("rows +", "fewer, higher rows", () => this.zoomRows(0.5)),
      button("rows −", "more rows", () => this.zoomRows(2)),
      button("whole run", "show the whole run (Home)", () => this.whole()));
    const heading = element("div", { class: "heading" }, element(this.compact ? "h3" : "h2", {}, title), this.compact ? null : this.buttons);
    this.section = element("section", { class: "stream" }, heading, this.compact ? null : this.summary, this.frame,
      this.compact ? null : legend(this.model.isNode), this.compact ? null : element("p", { class: "note" },
        "Wheel or + and − zoom, dragging or arrows move; with Shift the wheel changes how many rows there are."));
    container.append(this.section);
  }

  listen() {
    const stops = [];
    const on = (target, name, call, options) => {
      target.addEventListener(name, call, options);
      stops.push(() => target.removeEventListener(name, call, options));
    };
    on(this.model, "steps", () => this.grown());
    on(this.model, "now", () => { this.describe(); this.draw(); });
    on(this.model, "events", () => this.draw());
    on(themes, "change", () => { this.painter.forget(); this.draw(); });
    on(this.canvas, "wheel", (event) => this.wheel(event), { passive: false });
    on(this.canvas, "pointerdown", (event) => this.grab(event));
    on(this.canvas, "pointermove", (event) => this.hover(event));
    on(this.canvas, "pointerleave", () => this.tooltip.hide());
    stops.push(onWidth(this.frame, () => { this.draw(); this.later(); }));
    this.stops = stops;
  }

  destroy() {
    this.stops.forEach((stop) => stop());
    this.request?.abort();
    clearTimeout(this.timer);
    this.gone = true;
  }

  // --- data ----------------------------------------------------------------------------------------

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), WAIT);
  }

  async ask() {
    if (this.gone) return;
    const rows = this.view ? this.view.last - this.view.first + 1 : this.model.clients;
    const pixels = Math.max(100, this.frame.clientWidth - this.painter.left) * Math.min(2, window.devicePixelRatio || 1);
    const bins = Math.max(50, Math.min(Math.round(pixels), Math.floor(CELLS / Math.max(1, rows))));
    const wide = this.view && !(this.follow && this.isWhole);
    const margin = wide ? 0.25 * (this.view.to - this.view.from) : 0; // so that small movements show what is there
    const asked = wide
      ? { from: Math.max(this.begin, this.view.from - margin), to: Math.min(this.end, this.view.to + margin),
          bins: Math.round(bins * 1.5), first: Math.floor(this.view.first), last: Math.ceil(this.view.last) }
      : { bins, ...(this.fixedEnd === null ? {} : { to: this.fixedEnd }) };
    this.request?.abort();
    const request = (this.request = new AbortController());
    try {
      const found = await this.model.source.stream(this.model.id, asked, request.signal);
      if (!this.gone && !request.signal.aborted) this.take(found);
    } catch (error) {
      if (error.name !== "AbortError" && !this.gone) this.fail(error.message);
    }
  }

  fail(message) {
    if (this.picture) return;
    this.section.querySelectorAll(".tools, .legend, .note, .summary").forEach((part) => { part.hidden = true; });
    this.frame.replaceChildren(element("p", { class: "note" }, message));
  }

  take(found) {
    if (!found || found.bins === 0) {
      this.fail("No steps are recorded for this run.");
      return;
    }
    this.picture = { ...found, states: found.states ?? bytes(found.state), shares: found.shares ?? bytes(found.share) };
    this.painter.set(this.picture);
    const whole = !this.view || (this.follow && this.isWhole);
    this.begin = found.begin;
    this.end = Math.max(found.end, this.fixedEnd ?? found.end);
    if (whole) {
      this.view = { from: this.begin, to: this.end, first: 0, last: Math.max(0, this.model.clients - 1) };
      this.isWhole = true;
    }
    this.describe();
    this.draw();
    this.frame.dataset.pictures = ++this.asked;
  }

  grown() {
    if (this.gone || this.model.source.embedded) return;
    if (!this.follow || this.growing) return;
    this.growing = true;
    setTimeout(() => { this.growing = false; this.ask(); }, 500);
  }

  // --- where one looks -----------------------------------------------------------------------------

  look(view) {
    const clients = this.model.clients;
    const shortest = Math.max(1e-9, (this.end - this.begin) * 1e-7);
    const length = Math.min(this.end - this.begin, Math.max(shortest, view.to - view.from));
    const from = Math.min(Math.max(this.begin, view.from), this.end - length);
    const rows = Math.min(clients, Math.max(1, Math.round(view.last - view.first + 1)));
    const first = Math.min(Math.max(0, Math.round(view.first)), clients - rows);
    this.view = { from, to: from + length, first, last: first + rows - 1 };
    this.isWhole = length >= (this.end - this.begin) * 0.9999 && rows === clients;
    this.follow = this.isWhole;
    this.tooltip.hide();
    requestAnimationFrame(() => this.draw());
    this.later();
  }

  whole() {
    if (this.view) this.look({ from: this.begin, to: this.end, first: 0, last: this.model.clients - 1 });
  }

  zoom(factor, share = 0.5) {
    if (!this.view) return;
    const { from, to, first, last } = this.view;
    const centre = from + (to - from) * share;
    this.look({ from: centre - (centre - from) * factor, to: centre + (to - centre) * factor, first, last });
  }

  zoomRows(factor, share = 0.5) {
    if (!this.view) return;
    const { from, to, first, last } = this.view;
    const rows = last - first + 1;
    const more = factor > 1 ? Math.ceil(rows * factor) : Math.max(1, Math.floor(rows * factor));
    const start = first + rows * share - more * share;
    this.look({ from, to, first: start, last: start + more - 1 });
  }

  pan(share, rows = 0) {
    if (!this.view) return;
    const { from, to, first, last } = this.view;
    const by = (to - from) * share;
    this.look({ from: from + by, to: to + by, first: first + rows, last: last + rows });
  }

  zoomAt(event, factor) {
    this.zoom(factor, (event.offsetX - this.painter.left) / this.plot.width);
  }

  wheel(event) {
    if (!this.view) return;
    event.preventDefault();
    const factor = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 200)));
    if (event.shiftKey) this.zoomRows(factor, (event.offsetY - TOP) / this.plot.height);
    else this.zoomAt(event, factor);
  }

  grab(event) {
    if (!this.view || event.button > 0) return;
    const start = { x: event.clientX, y: event.clientY, view: this.view };
    const rows = this.view.last - this.view.first + 1;
    const move = (moved) => {
      const time = ((start.x - moved.clientX) / this.plot.width) * (start.view.to - start.view.from);
      const down = event.pointerType === "touch" ? 0 : Math.round(((start.y - moved.clientY) / this.plot.height) * rows);
      this.look({
        from: start.view.from + time, to: start.view.to + time,
        first: start.view.first + down, last: start.view.last + down,
      });
    };
    const drop = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", drop);
      window.removeEventListener("pointercancel", drop);
      this.canvas.classList.remove("held");
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", drop);
    window.addEventListener("pointercancel", drop);
    this.canvas.classList.add("held");
  }

  key(event) {
    const rows = this.view ? this.view.last - this.view.first + 1 : 1;
    const does = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2), Home: () => this.whole(), "0": () => this.whole(),
      ArrowUp: () => this.pan(0, -Math.max(1, Math.round(rows / 10))), ArrowDown: () => this.pan(0, Math.max(1, Math.round(rows / 10))),
      PageUp: () => this.zoomRows(0.5), PageDown: () => this.zoomRows(2),
    }[event.key];
    if (does && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      does();
    }
  }

  // --- drawing -------------------------------------------------------------------------------------

  height() {
    const rows = this.view.last - this.view.first + 1;
    const most = this.compact ? 150 : Math.min(560, Math.max(260, window.innerHeight - 390));
    return Math.min(most, Math.max(rows * (this.compact ? 14 : 26), this.compact ? 60 : 90));
  }

  draw() {
    if (!this.picture || this.gone || !this.frame.clientWidth) return;
    this.painter.draw(this.view, this.end, Math.max(200, this.frame.clientWidth), this.height());
    this.plot = this.painter.plot;
    Object.assign(this.frame.dataset, this.view); // where one looks, for whoever reads the page
  }

  // --- words ---------------------------------------------------------------------------------------

  describe() {
    const { model } = this;
    const shares = model.shares();
    const lost = model.lost();
    const time = this.end ?? model.now?.time;
    const who = model.isNode ? `${model.label(0)} and ${model.about.layout.near.length} neighbours` : `${count(model.clients)} clients`;
    const parts = [`${who}, ${model.timeless ? model.duration(time) : `${seconds(time)} of ${model.clock === "virtual" ? "virtual" : "real"} time`}.`];
    if (shares) {
      const does = model.isNode ? [`${model.label(0)} computes`, "communicates", "waits", "its"] : ["They compute", "communicate", "wait", "their"];
      parts.push(`${does[0]} ${percent(shares.compute)}, ${does[1]} ${percent(shares.communication)} and ${does[2]} ${percent(shares.waiting)} of ${does[3]} time.`);
    }
    if (lost.length) parts.push(`Lost: ${model.isNode ? "" : `client${lost.length > 1 ? "s" : ""} `}${lost.slice(0, 10).map((i) => model.label(i)).join(", ")}${lost.length > 10 ? " …" : ""}.`);
    const text = parts.join(" ");
    if (this.summary.textContent !== text) this.summary.textContent = text;
    this.canvas.setAttribute("aria-label", `Stream of ${model.about.name}. ${text}`);
  }

  hover(event) {
    if (!this.picture || !this.plot || event.buttons) return;
    const [px, py] = [event.offsetX, event.offsetY];
    const inside = px >= this.painter.left && px <= this.painter.left + this.plot.width && py >= TOP && py <= TOP + this.plot.height;
    if (!inside) {
      this.tooltip.hide();
      return;
    }
    const near = this.painter.markAt(px, py);
    this.tooltip.show(px, py, near ? aboutMark(near, this.model) : this.aboutPlace(px, py));
  }

  aboutPlace(px, py) {
    const { from, to, first, last } = this.view;
    const time = from + ((px - this.painter.left) / this.plot.width) * (to - from);
    const client = Math.min(last, Math.floor(first + ((py - TOP) / this.plot.height) * (last - first + 1)));
    const state = this.model.word(client);
    const title = `${this.model.called(client)}${state ? ` (${state})` : ""}`;
    const step = this.picture.steps?.find(([i, , start, a, b, d]) => i === client && start <= time && time <= start + a + b + d);
    if (step) {
      const [, c, start, compute, waiting, communication, loss, steps = 1] = step;
      return [
        title, `step ${count(c)}${steps > 1 ? ` (${steps} steps together)` : ""}, from ${this.model.duration(start)} on`,
        ...(this.model.timeless ? [] : [`computes ${seconds(compute)}`, `waits ${seconds(waiting)}`, `communicates ${seconds(communication)}`]), ...(loss === undefined || loss === null ? [] : [`loss ${short(loss)}`]),
      ];
    }
    const { picture } = this;
    const bin = Math.floor(((time - picture.from) / (picture.to - picture.from)) * picture.bins);
    if (bin < 0 || bin >= picture.bins || client < picture.first || client > picture.last) return [title, this.model.duration(time)];
    const place = Math.floor((client - picture.first) / picture.per_row) * picture.bins + bin;
    const what = picture.states[place];
    const width = (picture.to - picture.from) / picture.bins;
    if (!what && this.model.isNode && client > 0) return [title, this.model.duration(time), this.there(client, time) ? "here" : "not there"];
    return [title, `${this.model.duration(time)} (± ${this.model.duration(width / 2)})`, what ? `${WORDS[what]}: ${percent(picture.shares[place] / 255)}` : "not there"];
  }

  there(client, time) {
    return (this.model.presences()[client] ?? []).some(([from, to]) => from <= time && time <= (to ?? Infinity));
  }
}

function aboutMark({ mark, kind }, model) {
  const who = mark.client === undefined || mark.client === null ? (model.isNode ? "all" : "all clients") : model.called(mark.client);
  return [`${who}: ${mark.event}`, MARKS[kind], model.duration(model.at(mark)), ...(mark.reason ? [mark.reason] : [])];
}
