// One run as the views see it: its newest data, and events when they change.

import { iterations, known, seconds, sum } from "./dom.js";

export const GONE = new Set(["lost", "crash", "leave"]);
export const BACK = new Set(["join", "return", "restart", "back"]);
export const RENEWED = new Set(["renew", "ccs"]);

// How a mark of the stream looks: {kind, colour}; null for events that are not marked.
export function kindOf(event) {
  if (GONE.has(event)) return "lost";
  if (BACK.has(event)) return "back";
  if (RENEWED.has(event)) return "renewal";
  return null;
}

const SEEN = 2000; // milliseconds for which a loss is shown, even if the client is back at once

export class RunModel extends EventTarget {
  constructor(source, id) {
    super();
    this.source = source;
    this.id = id;
    this.about = null;
    this.now = null;
    this.curves = null;
    this.events = [];
    this.next = 0;
    this.wanted = new Set();
    this.busy = false;
    this.losses = new Map(); // when a loss that happened meanwhile was noticed, by client
  }

  async load() {
    this.about = await this.source.run(this.id);
    await this.refresh(["now", "events", "curves"]);
    this.loaded = true;
    return this;
  }

  get clients() {
    return this.about.layout?.clients ?? this.now?.columns?.state?.length ?? this.about.partition?.sizes?.length ?? 0;
  }

  get clock() {
    return this.about.layout?.clock ?? { virtual: "virtual", sampled: "iterations" }[this.about.engine] ?? "wall";
  }

  // The nodes of a federation have names. Such a run is what the first of them knows of itself and its neighbours.
  get names() {
    return this.about.layout?.names ?? [];
  }

  get isNode() {
    return this.names.length > 0;
  }

  // A client, in a sentence and where there is little room.
  called(i) {
    return this.names[i] ?? `client ${i}`;
  }

  label(i) {
    return this.names[i] ?? String(i);
  }

  // Nothing takes time: the clock counts iterations, which say nothing of who computes or waits how long.
  get timeless() {
    return this.clock === "iterations";
  }

  // The column of the curves that is this run's clock.
  get along() {
    return this.timeless ? "iteration" : "time";
  }

  // When something happened, by the run's clock.
  at(event) {
    return event[this.along];
  }

  // A time or a duration in words.
  duration(value) {
    return this.timeless ? iterations(value) : seconds(value);
  }

  get over() {
    return !["running", "starting"].includes(this.about.state);
  }

  // What was told to have changed is asked for; what changes meanwhile, once more afterwards.
  async refresh(changed) {
    changed.forEach((part) => this.wanted.add(part));
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.wanted.size) {
        const parts = new Set(this.wanted);
        this.wanted.clear();
        await Promise.all([...parts].map((part) => this.#part(part)));
        for (const part of parts) this.dispatchEvent(new Event(part));
      }
    } finally {
      this.busy = false;
    }
  }

  async #part(part) {
    if (part === "now") this.now = await this.source.now(this.id);
    if (part === "curves") this.curves = await this.source.curves(this.id);
    if (part === "run") this.about = await this.source.run(this.id);
    if (part === "events") {
      let more = true;
      while (more) {
        const { first, next, total, events } = await this.source.events(this.id, this.next);
        if (first !== this.next) this.events = []; // a resumed run: what was known is replaced
        if (this.loaded) events.forEach((event) => this.#notice(event));
        this.events.push(...events);
        this.next = next;
        more = events.length > 0 && next < total;
      }
    }
  }

  #notice({ event, client }) {
    if (!GONE.has(event) || !known(client)) return;
    this.losses.set(client, performance.now());
    setTimeout(() => this.dispatchEvent(new Event("now")), SEEN + 50);
    this.wanted.add("now");
  }

  // --- what several views say --------------------------------------------------------------------

  state(client) {
    if (performance.now() - (this.losses.get(client) ?? -Infinity) < SEEN) return "lost";
    return this.now?.columns?.state?.[client] ?? "";
  }

  // The state in a word: of a node's neighbours it is known whether they are there, not what they do.
  word(i) {
    const state = this.state(i);
    return this.isNode && i > 0 ? { starting: "not here yet", running: "here", stopped: "no neighbour any more" }[state] ?? state : state;
  }

  // Of a node: its weights, and how old the newest models of its neighbours are; by client.
  ofNeighbours() {
    const found = { weight: this.names.map(() => null), old: this.names.map(() => null) };
    const { time, edges, weights } = this.now ?? {};
    (this.about.layout?.near ?? []).forEach((i, place) => {
      found.weight[i] = weights?.[place] ?? null;
      const since = edges?.since?.[place];
      if (known(since) && known(time)) found.old[i] = Math.max(0, time - since);
    });
    return found;
  }

  lost() {
    return (this.now?.columns?.state ?? []).flatMap((_, i) => (this.state(i) === "lost" ? [i] : []));
  }

  steps() {
    return this.now?.done ?? 0;
  }

  // The shares of all clients' time: compute, communication, waiting.
  shares() {
    const columns = this.now?.columns ?? {};
    const parts = ["compute", "communication", "waiting"].map((name) => sum(columns[name] ?? []));
    const whole = sum(parts);
    return whole > 0 && !this.timeless ? { compute: parts[0] / whole, communication: parts[1] / whole, waiting: parts[2] / whole } : null;
  }

  // From when to when each client was away: {client: [[from, to]...]}, to is null while it is.
  absences() {
    const found = {};
    for (const { event, client, ...more } of this.events) {
      const time = this.at(more);
      if (client === undefined || client === null || !known(time)) continue;
      const spans = (found[client] ||= []);
      const last = spans.at(-1);
      if (GONE.has(event)) {
        if (!last || last[1] !== null) spans.push([time, null]);
      } else if (BACK.has(event) && last && last[1] === null) last[1] = time;
    }
    return found;
  }

  // From when to when the neighbours of a node were there: {client: [[from, to]...]}, to is null while one is.
  presences() {
    const found = {};
    if (!this.isNode) return found;
    const close = (spans, time) => { if (spans?.length && spans.at(-1)[1] === null) spans.at(-1)[1] = time; };
    for (const { event, client, time } of this.events) {
      if (!known(time)) continue;
      if (["stop", "end", "failed", "resume"].includes(event) || (client === 0 && GONE.has(event))) {
        Object.values(found).forEach((spans) => close(spans, time)); // nobody looks any more
      } else if (client > 0 && BACK.has(event)) {
        close(found[client], time);
        (found[client] ||= []).push([time, null]);
      } else if (client > 0 && GONE.has(event)) close(found[client], time);
    }
    return found;
  }

  last(column) {
    const values = this.curves?.columns?.[column] ?? [];
    for (let k = values.length - 1; k >= 0; k--) if (known(values[k])) return values[k];
    return null;
  }
}
