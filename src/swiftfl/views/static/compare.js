// Several runs over each other: curves, time to a loss, streams, and what differs in their configurations.

import { choice, colours, element, known, percent, short, themes } from "./dom.js";
import { axesOf, axisLabel, Chart, DASHES } from "./curves.js";
import { RunModel } from "./model.js";
import { legend } from "./painting.js";
import { StreamView } from "./stream.js";
import { table } from "./tables.js";

export class CompareView {
  constructor(container, source, ids) {
    this.source = source;
    this.ids = ids;
    this.level = null;
    this.metric = "loss";
    this.streams = [];
    this.body = element("div", {}, element("p", { class: "note" }, "Reading the runs …"));
    container.append(this.body);
    this.again = () => this.draw();
  }

  async load() {
    this.models = await Promise.all(this.ids.map((id) => new RunModel(this.source, id).load()));
    this.found = await this.source.compare(this.ids);
    if (this.gone) return;
    this.axis = axesOf(this.models)[0][0];
    this.level = this.common();
    this.place();
    this.models.forEach((model) => model.addEventListener("curves", this.again));
    this.models.forEach((model) => model.addEventListener("now", this.again));
    themes.addEventListener("change", this.again);
    this.draw();
  }

  destroy() {
    this.gone = true;
    this.chart?.destroy();
    this.streams.forEach((stream) => stream.destroy());
    themes.removeEventListener("change", this.again);
  }

  place() {
    const metrics = [...new Set(this.models.flatMap((model) => Object.keys(model.curves?.columns ?? {})))]
      .filter((name) => !["time", "iteration", "epoch", "models_in_memory", "evaluation_seconds"].includes(name));
    this.field = element("input", { type: "number", step: "any", min: "0", value: this.level ?? "", "aria-label": "loss to reach",
      on: { input: () => this.choose(this.field.value === "" ? null : Number(this.field.value), false) } });
    const tools = element("div", { class: "tools" },
      choice("show:", metrics.map((name) => [name, words(name)]), this.metric, (name) => { this.metric = name; this.draw(); }),
      choice("over:", axesOf(this.models), this.axis, (axis) => { this.axis = axis; this.draw(); }),
      element("label", { class: "choice" }, "time to loss ", this.field));
    const chartPlace = element("div", { class: "curves single" });
    this.results = element("div", {});
    this.body.replaceChildren(element("div", { class: "heading" }, element("h2", {}, "Comparison"), tools), chartPlace,
      element("p", { class: "note" }, "Click into the curves of the loss to choose the loss whose time is shown."), this.results,
      element("h2", {}, "Streams"), this.placeStreams(), legend(this.models.some((model) => model.isNode)), element("h2", {}, "What differs"), this.differences());
    this.chart = new Chart(chartPlace, { title: "", height: 320, log: true, onClick: (level) => this.metric === "loss" && this.choose(level, true) });
    this.drawStreams();
  }

  placeStreams() {
    this.streamPlaces = this.models.map(() => element("div", {}));
    return element("div", { class: "streams" }, ...this.streamPlaces);
  }

  async drawStreams() {
    const together = this.models.every((model) => model.clock === this.models[0].clock);
    const ends = await Promise.all(this.models.map((model) => this.source.stream(model.id, { bins: 1 }).then((s) => s?.end ?? null).catch(() => null)));
    if (this.gone) return;
    const end = together ? Math.max(...ends.filter(known), 0) || null : null;
    this.models.forEach((model, k) => {
      const shares = model.shares();
      const title = `${model.about.name}${shares ? `: waits ${percent(shares.waiting)} of the time` : ""}`;
      this.streams.push(new StreamView(this.streamPlaces[k], model, { compact: true, end, title }));
    });
  }

  // A loss that all of them have reached: the lowest there is, rounded up.
  common() {
    const best = this.models.map((model) => (model.curves?.columns?.loss ?? []).filter(known).reduce((a, b) => Math.min(a, b), Infinity));
    const worst = Math.max(...best);
    if (!(worst > 0 && worst < Infinity)) return null;
    const unit = 10 ** (Math.floor(Math.log10(worst)) - 2);
    return Number((Math.ceil(worst / unit) * unit).toPrecision(3));
  }

  choose(level, write) {
    this.level = known(level) ? Number(level.toPrecision(3)) : null;
    if (write) this.field.value = this.level ?? "";
    this.draw();
  }

  draw() {
    if (this.gone || !this.chart) return;
    const { series } = colours();
    const scale = /accuracy/.test(this.metric) ? 100 : 1;
    const lines = this.models.map((model, k) => ({
      label: model.about.name, x: model.curves?.columns?.[this.axis] ?? [], colour: series[k % series.length], dash: DASHES[Math.floor(k / series.length + k) % 4],
      y: (model.curves?.columns?.[this.metric] ?? []).map((value) => (known(value) ? scale * value : null)),
    }));
    const title = words(this.metric) + (scale === 100 ? " (%)" : "");
    this.chart.set(lines, { title, xLabel: axisLabel(this.axis, this.models), log: this.metric.includes("loss"), percentages: scale === 100 });
    this.chart.mark(this.metric === "loss" ? this.level : null);
    this.write();
  }

  write() {
    const times = this.models.map((model) => reached(model.curves?.columns ?? {}, this.level, model.along));
    const clocks = new Set(this.models.map(({ clock }) => clock)); // times of different clocks are not compared
    const best = (clock) => Math.min(...times.filter((time, k) => known(time) && this.models[k].clock === clock));
    const say = (model, time) => model.duration(time) + (clocks.size > 1 && model.clock === "virtual" && known(time) ? " (virtual)" : "");
    const rows = this.models.map((model, k) => {
      const shares = model.shares();
      const time = times[k];
      return [
        element("a", { href: `#/run/${encodeURIComponent(model.id)}` }, model.about.name), short(model.last("loss")),
        known(model.last("accuracy")) ? percent(model.last("accuracy")) : "–", say(model, model.last(model.along)), short(model.last("epoch")),
        shares ? percent(shares.waiting) : "–",
        this.level === null ? "–" : known(time) ? say(model, time) : "not reached",
        known(time) && best(model.clock) > 0 ? `${(time / best(model.clock)).toFixed(2)} ×` : "–",
      ];
    });
    this.results.replaceChildren(table("Runs", ["run", "test loss", "accuracy", "time", "epochs", "waiting",
      this.level === null ? "time to loss" : `to loss ${short(this.level)}`, clocks.size > 1 ? "÷ fastest of its clock" : "÷ fastest"], rows));
  }

  differences() {
    const { differences } = this.found;
    if (!differences.length) return element("p", {}, "Their configurations are the same.");
    const say = (value) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));
    return table("Settings that differ", ["setting", ...this.models.map((model) => model.about.name)],
      differences.map(({ key, values }) => [element("code", {}, key), ...values.map(say)]));
  }
}

function words(name) {
  return { loss: "test loss", accuracy: "accuracy", mean_client_loss: "mean client loss", train_loss: "training loss",
    mean_client_accuracy: "mean client accuracy", consensus_distance: "consensus distance" }[name] ?? name.replace(/^metrics\./, "");
}

// When an evaluation first found at most this loss.
export function reached({ loss = [], ...clocks }, level, along) {
  if (level === null) return null;
  const at = loss.findIndex((value) => known(value) && value <= level);
  return at < 0 ? null : clocks[along]?.[at] ?? null;
}
