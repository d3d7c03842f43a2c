// Elements, numbers and colours, as every view writes them.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(text, title, click) {
  return element("button", { type: "button", title, "aria-label": title, on: { click } }, text);
}

export function choice(label, options, chosen, change) {
  const select = element("select", { on: { change: () => change(select.value) } });
  for (const [value, text] of options) {
    select.append(element("option", { value, selected: value === chosen }, text));
  }
  return element("label", { class: "choice" }, `${label} `, select);
}

// --- numbers ---------------------------------------------------------------------------------------

export function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function short(value, digits = 4) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "−");
  const text = size >= 10 ** digits ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(digits));
  return text.replace("-", "−");
}

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : "–";
}

export function percent(value) {
  if (!known(value)) return "–";
  const text = (100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0);
  return `${text === "0.0" ? "< 0.1" : text} %`;
}

export function seconds(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${short(value * 1e6, 3)} µs`;
  if (size < 1) return `${short(value * 1e3, 3)} ms`;
  if (size < 120) return `${short(value, 4)} s`;
  if (size < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

// Of a clock that counts iterations: nothing takes time there.
export function iterations(value) {
  return known(value) ? `${short(value, 6)} iteration${value === 1 ? "" : "s"}` : "–";
}

export function sum(values) {
  return values.reduce((total, value) => total + (known(value) ? value : 0), 0);
}

export function mean(values) {
  const there = values.filter(known);
  return there.length ? sum(there) / there.length : null;
}

// Distances of ticks that people can read: 1, 2 or 5 times a power of ten.
export function ticks(from, to, most) {
  const raw = (to - from) / Math.max(1, most);
  if (!(raw > 0)) return { step: 1, values: [from] };
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const values = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; k++) values.push(k * step);
  return { step, values };
}

// --- colours ---------------------------------------------------------------------------------------

const SERIES = [0, 1, 2, 3, 4, 5, 6, 8].map((k) => `series-${k}`); // without yellow, which is too light for lines
const SHADES = [0, 1, 2, 3, 4, 5, 6].map((k) => `shade-${k}`);
const NAMES = [
  "ground", "card", "line", "text", "soft", "link", "compute", "communication", "empty", "hatch", "absent",
  "lost", "returned", "renewal", ...SERIES, ...SHADES,
];

let palette = null;

// The colours of the style sheet as a canvas needs them; read again when the theme changes.
export function colours() {
  if (palette) return palette;
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  palette = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    palette[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  palette.series = SERIES.map((name) => palette[name]);
  palette.shades = SHADES.map((name) => palette[name]);
  return palette;
}

export const themes = new EventTarget();

export function themeChanged() {
  palette = null;
  themes.dispatchEvent(new Event("change"));
}

export function channels(colour) {
  const found = colour.match(/[\d.]+/g).map(Number);
  return found.slice(0, 3);
}

export function mixed(one, other, share) {
  const [a, b] = [channels(one), channels(other)];
  return `rgb(${a.map((value, k) => Math.round(value + (b[k] - value) * share)).join(",")})`;
}

// From little (0) to much (1), away from the ground.
export function shade(value) {
  const { shades } = colours();
  const place = Math.min(1, Math.max(0, value)) * (shades.length - 1);
  const below = Math.min(shades.length - 2, Math.floor(place));
  return mixed(shades[below], shades[below + 1], place - below);
}

// What is read on a colour: black or white.
export function inkOn(colour) {
  const [red, green, blue] = channels(colour);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111111" : "#ffffff";
}

// A canvas that is as sharp as the screen; returns its context, scaled to CSS pixels.
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// A box of words beside the pointer, inside its frame.
export class Tooltip {
  constructor(frame) {
    this.frame = frame;
    this.box = element("div", { class: "tooltip", role: "status", hidden: true });
    frame.append(this.box);
  }

  show(x, y, lines) {
    this.box.replaceChildren(...lines.map((line, k) => element(k ? "div" : "strong", {}, line)));
    this.box.hidden = false;
    const width = this.box.offsetWidth;
    const left = x + 14 + width > this.frame.clientWidth ? Math.max(0, x - 14 - width) : x + 14;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${y + 14}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

// Calls `draw` when the width of an element has changed; returns what ends that.
export function onWidth(container, draw) {
  let before = container.clientWidth;
  const observer = new ResizeObserver(() => {
    if (container.clientWidth !== before && container.clientWidth > 0) {
      before = container.clientWidth;
      requestAnimationFrame(draw);
    }
  });
  observer.observe(container);
  return () => observer.disconnect();
}
