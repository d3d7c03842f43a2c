// How a stream is painted: rows of clients over time, marks of what happened, axes.
// Computing and communicating are painted over a hatched ground, so that waiting looks as empty as it is.

import { channels, colours, element, known, sharp, ticks } from "./dom.js";
import { kindOf } from "./model.js";

const LEFT = 46;
const LONGEST = 130; // pixels of a name
export const TOP = 8;
const BOTTOM = 26;
const FONT = "12px system-ui, sans-serif";
const MARK_COLOURS = { lost: "lost", back: "returned", renewal: "renewal" };

export class StreamPainter {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.scratch = document.createElement("canvas");
    this.shown = []; // marks, with their places
    this.left = LEFT; // where the rows begin
  }

  // Names of clients need more room than numbers; on a small screen not more than a fourth of it.
  measure(whole) {
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const widest = this.model.names.reduce((most, name) => Math.max(most, context.measureText(name).width), 0);
    this.left = Math.max(LEFT, Math.ceil(Math.min(widest, LONGEST, whole / 4)) + 18);
  }

  // The states that were asked for; how they look is computed when they are drawn.
  set(picture) {
    this.picture = picture;
    this.image = null;
  }

  forget() {
    this.image = null;
  }

  // Draw a view {from, to, first, last} of a run that lasts until `end`, `width` wide and `height` high without its axis.
  draw(view, end, whole, height) {
    this.measure(whole);
    const size = (this.plot = { width: whole - this.left - 8, height });
    this.view = view;
    this.end = end;
    const context = sharp(this.canvas, whole, height + TOP + BOTTOM);
    const c = colours();
    context.clearRect(0, 0, whole, height + TOP + BOTTOM);
    context.fillStyle = c.absent;
    context.fillRect(this.left, TOP, size.width, size.height);
    const { from, to, first, last } = view;
    this.x = (time) => this.left + ((time - from) / (to - from)) * size.width;
    this.y = (row) => TOP + ((row - first) / (last - first + 1)) * size.height;
    context.save();
    context.beginPath();
    context.rect(this.left, TOP, size.width, size.height);
    context.clip();
    this.drawPresences(context, c);
    this.drawAbsences(context, c);
    const high = size.height / (last - first + 1);
    this.paint(context, c, high);
    if (high >= 5) this.separate(context, c, high);
    context.restore();
    this.drawMarks(context, c, high);
    this.drawAxes(context, c, high);
  }

  // The mark at a place, if there is one.
  markAt(px, py) {
    return this.shown.find(({ x, y }) => Math.abs(x - px) < 6 && (y === null ? py < TOP + 12 : Math.abs(y - py) < 8));
  }

  // States are painted beside, over a hatched ground, and then put in their place.
  paint(context, c, high) {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = this.plot;
    const scratch = this.scratch;
    scratch.width = Math.max(1, Math.round(width * ratio));
    scratch.height = Math.max(1, Math.round(height * ratio));
    const on = scratch.getContext("2d");
    on.setTransform(ratio, 0, 0, ratio, -this.left * ratio, -TOP * ratio);
    on.imageSmoothingEnabled = high < 1.5;
    const { picture } = this;
    const exact = picture.steps && high >= 2 && this.wideEnough(); // narrower ones would hide each other
    if (exact) this.eachPart((left, top, wide, tall) => { on.fillRect(left, top, wide, tall); }, on, c.empty, null);
    else this.blit(on, "ground");
    on.globalCompositeOperation = "source-atop";
    on.fillStyle = hatch(on, c);
    on.fillRect(this.left, TOP, width, height);
    if (exact) {
      on.globalCompositeOperation = "source-over";
      for (const part of ["compute", "communication"]) {
        this.eachPart((left, top, wide, tall) => { on.fillRect(left, top, wide, tall); }, on, c[part], part);
      }
    } else this.blit(on, "work");
    context.drawImage(scratch, this.left, TOP, width, height);
  }

  // Whether a step is at least a few pixels wide, on average.
  wideEnough() {
    const { steps } = this.picture;
    const spent = steps.reduce((total, [, , , compute, waiting, communication]) => total + compute + waiting + communication, 0);
    const { from, to } = this.view;
    return (spent / Math.max(1, steps.length)) * (this.plot.width / (to - from)) >= 5;
  }

  eachPart(fill, on, colour, part) {
    on.fillStyle = colour;
    const { from, to, first, last } = this.view;
    const gap = (this.plot.width * 3) / Math.max(1, this.picture.steps.length) > 2 ? 0.6 : 0;
    for (const [i, , start, compute, waiting, communication] of this.picture.steps) {
      if (i < first || i > last) continue;
      const end = start + compute + waiting + communication;
      if (end < from || start > to) continue;
      const [begin, stop] = part === "compute" ? [start, start + compute]
        : part === "communication" ? [end - communication, end] : [start, end];
      if (stop <= begin) continue;
      const left = this.x(begin);
      const wide = this.x(stop) - left - (part === "communication" || (part === null && waiting > 0) ? gap : 0);
      if (wide > 0) fill(left, this.y(i), wide, this.y(i + 1) - this.y(i));
    }
  }

  blit(on, layer) {
    this.image ||= this.layers();
    const { picture } = this;
    const left = this.x(picture.from);
    const top = this.y(picture.first);
    on.drawImage(this.image[layer], left, top, this.x(picture.to) - left, this.y(picture.first + picture.rows * picture.per_row) - top);
  }

  // Two images with one pixel per row and bin: where there is anything, and the work that is done there.
  layers() {
    const { states, shares, bins, rows } = this.picture;
    const c = colours();
    const ink = [null, channels(c.compute), channels(c.communication)];
    const white = channels(c.empty);
    const made = {};
    for (const layer of ["ground", "work"]) {
      const canvas = element("canvas", { width: bins, height: rows });
      const context = canvas.getContext("2d");
      const image = context.createImageData(bins, rows);
      for (let k = 0; k < bins * rows; k++) {
        const colour = layer === "ground" ? (states[k] ? white : null) : ink[states[k]];
        if (!colour) continue;
        image.data.set(colour, 4 * k);
        image.data[4 * k + 3] = layer === "ground" ? 255 : 50 + Math.round(shares[k] * 0.804);
      }
      context.putImageData(image, 0, 0);
      made[layer] = canvas;
    }
    return made;
  }

  separate(context, c, high) {
    context.fillStyle = c.ground;
    const gap = high >= 14 ? 3 : 1;
    for (let row = this.view.first; row <= this.view.last + 1; row++) context.fillRect(this.left, this.y(row) - gap / 2, this.plot.width, gap);
  }

  // Of a node's neighbours only that they are there: a thin line.
  drawPresences(context, c) {
    context.fillStyle = c.returned;
    context.globalAlpha = 0.55;
    for (const [client, spans] of Object.entries(this.model.presences())) {
      const middle = (this.y(Number(client)) + this.y(Number(client) + 1)) / 2;
      for (const [from, to] of spans) context.fillRect(this.x(from), middle - 2, this.x(to ?? this.end) - this.x(from), 4);
    }
    context.globalAlpha = 1;
  }

  drawAbsences(context, c) {
    context.fillStyle = c.lost;
    context.globalAlpha = 0.35;
    for (const [client, spans] of Object.entries(this.model.absences())) {
      const row = Number(client);
      for (const [from, to] of spans) {
        const left = this.x(from);
        context.fillRect(left, this.y(row), this.x(to ?? this.end) - left, Math.max(1, this.y(row + 1) - this.y(row)));
      }
    }
    context.globalAlpha = 1;
  }

  drawMarks(context, c, high) {
    const { from, to, first, last } = this.view;
    this.shown = [];
    const size = Math.max(3.5, Math.min(6, high / 3));
    const events = this.model.events.length ? this.model.events : this.picture.marks;
    for (const mark of events) {
      const kind = kindOf(mark.event);
      const time = this.model.at(mark);
      if (!kind || !known(time) || time < from || time > to) continue;
      const x = this.x(time);
      const client = mark.client ?? null;
      if (client === null) {
        context.strokeStyle = c.renewal;
        context.setLineDash([4, 3]);
        context.lineWidth = 1.2;
        context.beginPath();
        context.moveTo(x, TOP - 6);
        context.lineTo(x, TOP + this.plot.height);
        context.stroke();
        context.setLineDash([]);
        this.shown.push({ x, y: null, mark, kind });
      } else if (client >= first && client <= last) {
        const y = (this.y(client) + this.y(client + 1)) / 2;
        symbol(context, kind, x, y, size, c);
        this.shown.push({ x, y, mark, kind });
      }
    }
  }

  drawAxes(context, c, high) {
    const { from, to, first, last } = this.view;
    const { width, height } = this.plot;
    context.font = FONT;
    context.textBaseline = "middle";
    const each = Math.max(1, ticks(0, last - first + 1, Math.max(1, Math.floor(height / 16))).step);
    const step = Math.ceil(each);
    context.textAlign = "right";
    for (let row = Math.ceil(first / step) * step; row <= last; row += step) {
      context.fillStyle = this.model.state(row) === "lost" ? c.lost : c.soft;
      context.fillText(this.model.label(row), this.left - 14, (this.y(row) + this.y(row + 1)) / 2, this.left - 16);
    }
    for (let row = first; row <= last; row++) {
      const state = this.model.state(row);
      if (!state) continue;
      const middle = (this.y(row) + this.y(row + 1)) / 2;
      const tall = Math.max(1, Math.min(10, high - 1));
      const idle = ["finished", "stopped", "left", ...(this.model.isNode && row > 0 ? ["starting"] : [])];
      context.fillStyle = state === "lost" ? c.lost : idle.includes(state) ? c.line : c.returned;
      context.fillRect(this.left - 8, middle - tall / 2, 5, tall);
    }
    const { values, step: distance } = ticks(from, to, Math.max(2, Math.floor(width / 75)));
    context.textAlign = "center";
    context.strokeStyle = c.line;
    context.fillStyle = c.soft;
    const digits = Math.max(0, -Math.floor(Math.log10(distance) + 1e-9));
    for (const value of values) {
      const x = this.x(value);
      context.beginPath();
      context.moveTo(x, TOP + height);
      context.lineTo(x, TOP + height + 4);
      context.stroke();
      if (x < this.left + width - (this.model.timeless ? 80 : 30)) context.fillText(value.toFixed(digits), x, TOP + height + 14);
    }
    context.textAlign = "right";
    context.fillText(this.model.timeless ? "iterations" : "s", this.left + width, TOP + height + 14);
  }
}

function hatch(context, c) {
  const size = 7;
  const tile = element("canvas", { width: size, height: size });
  const on = tile.getContext("2d");
  on.fillStyle = c.empty;
  on.fillRect(0, 0, size, size);
  on.strokeStyle = c.hatch;
  on.lineWidth = 1;
  on.beginPath();
  for (const shift of [-size, 0, size]) {
    on.moveTo(shift, size);
    on.lineTo(shift + size, 0);
  }
  on.stroke();
  return context.createPattern(tile, "repeat");
}

function symbol(context, kind, x, y, size, c) {
  context.lineWidth = 3.6;
  context.strokeStyle = c.ground;
  for (const pass of [0, 1]) {
    if (pass) {
      context.lineWidth = 2;
      context.strokeStyle = c[MARK_COLOURS[kind]];
    }
    context.fillStyle = c[MARK_COLOURS[kind]];
    context.beginPath();
    if (kind === "lost") {
      context.moveTo(x - size, y - size);
      context.lineTo(x + size, y + size);
      context.moveTo(x + size, y - size);
      context.lineTo(x - size, y + size);
      context.stroke();
    } else if (kind === "back") {
      context.moveTo(x - size, y - size);
      context.lineTo(x + size, y);
      context.lineTo(x - size, y + size);
      context.closePath();
      if (pass) context.fill();
      else context.stroke();
    } else {
      context.moveTo(x, y - size);
      context.lineTo(x, y + size);
      context.stroke();
    }
  }
}

export function legend(ofNodes) {
  const item = (kind, words) => element("li", {}, element("span", { class: `key ${kind}`, "aria-hidden": "true" }), words);
  return element("ul", { class: "legend", "aria-label": "legend" }, item("compute", "computes"),
    item("communication", "communicates"), item("waiting", "waits"), item("absent", "between steps, away or finished"),
    ...(ofNodes ? [item("present", "a neighbour is here")] : []),
    item("lost", "✕ lost"), item("back", ofNodes ? "▶ comes" : "▶ returns"), item("renewal", "weights renewed"));
}
