// The page: finds its source, shows the address's view, and tells views of what has changed.

import { button, count, element, known, percent, seconds, short, themeChanged } from "./dom.js";
import { CompareView } from "./compare.js";
import { CurvesView } from "./curves.js";
import { GraphView } from "./graph.js";
import { RunModel } from "./model.js";
import { EmbeddedSource, Missing, Refused, ServerSource } from "./source.js";
import { StreamView } from "./stream.js";
import { ClientsView, ClientView, configurationPart, eventsPart, PartitionView, refusalsPart, table } from "./tables.js";

const TABS = [["", "Overview"], ["stream", "Stream"], ["graph", "Graph"], ["curves", "Curves"], ["clients", "Clients"],
  ["events", "Events"], ["about", "Settings and data"]];

class App {
  constructor(source) {
    this.source = source;
    this.top = document.getElementById("top");
    this.main = document.getElementById("main");
    this.shown = [];
    this.models = new Map();
    this.how = element("span", { class: "how" });
    this.theme = button("", "light or dark", () => this.turn());
    this.trail = element("nav", { class: "trail", "aria-label": "where" });
    this.top.replaceChildren(element("div", { class: "bar-top" }, this.trail, element("div", { class: "tools" }, this.how, this.theme)));
    this.setTheme(remembered());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
    window.addEventListener("hashchange", () => this.route());
    document.querySelector(".skip")?.addEventListener("click", (event) => {
      event.preventDefault(); // a place in the page, not another view
      this.main.focus();
    });
    source.live((what) => this.changed(what), (how) => this.say(how));
  }

  // --- theme -----------------------------------------------------------------------------------------

  setTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    this.theme.textContent = this.dark ? "☀ light" : "☾ dark";
    themeChanged();
  }

  get dark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  turn() {
    const theme = this.dark ? "light" : "dark";
    try {
      localStorage.setItem("swiftfl-theme", theme);
    } catch { /* a page from a file may have no storage */ }
    this.setTheme(theme);
  }

  // --- what has changed ------------------------------------------------------------------------------

  say(how) {
    this.how.textContent = how === "live" ? "● live" : "○ asking every second";
    this.how.dataset.how = how;
  }

  changed({ run, changed }) {
    if (changed.includes("runs")) this.listAgain?.();
    if (this.missing && changed.includes("runs")) { // perhaps it is there again
      this.missing = false;
      this.route();
      return;
    }
    const parts = changed.filter((part) => part !== "runs");
    for (const [id, model] of this.models) {
      if (run !== null && run !== id) continue;
      if (parts.length) model.refresh(parts).catch((error) => this.fail(error));
      if (changed.includes("runs") && !parts.includes("run")) model.refresh(["run", "now", "events"]).catch((error) => this.fail(error));
    }
  }

  fail(error) {
    if (error instanceof Missing) { // its folder is gone: nothing that is shown holds any more
      this.missing = true;
      this.models.clear();
    }
    if (error instanceof Refused || error instanceof Missing) this.show(element("p", { class: "problem", role: "alert" }, error.message));
    else this.say("polling");
  }

  // --- addresses -------------------------------------------------------------------------------------

  async route() {
    this.shown.forEach((view) => view.destroy?.());
    this.shown = [];
    this.listAgain = null;
    const [place, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const key = location.hash;
    try {
      const words = place.split("/").filter(Boolean).map(plainly);
      if (words[0] === "compare") await this.compare(new URLSearchParams(query).get("runs")?.split(",").filter(Boolean) ?? []);
      else if (words[0] === "run" && words[1]) await this.run(words[1], words[2] ?? "", words[3]);
      else await this.start();
    } catch (error) {
      if (key === location.hash) this.show(element("p", { class: "problem", role: "alert" }, error.message));
    }
    document.body.dataset.ready = location.hash || "#/";
  }

  show(...children) {
    this.main.replaceChildren(...children);
  }

  title(...steps) {
    const home = this.source.embedded && this.source.data.runs.length === 1 ? [] : [["#/", "runs"]];
    this.trail.replaceChildren(...[...home, ...steps].flatMap(([href, text], k) => [
      ...(k ? [" / "] : []), href ? element("a", { href }, text) : element("span", { "aria-current": "page" }, text)]));
    document.title = [...steps.map(([, text]) => text).reverse(), "swiftfl"].join(" · ");
  }

  async model(id) {
    if (!this.models.has(id)) {
      this.models.clear();
      this.models.set(id, await new RunModel(this.source, id).load());
    }
    return this.models.get(id);
  }

  // Where no address is given: the only run, a report's comparison, or the list.
  async start() {
    const runs = await this.source.runs();
    if (runs.length === 1 && !location.hash.startsWith("#/")) return this.run(runs[0].id, "");
    if (this.source.embedded && !location.hash.startsWith("#/")) return this.compare(runs.map(({ id }) => id));
    return this.list(runs);
  }

  // --- the list --------------------------------------------------------------------------------------

  list(runs) {
    this.models.clear();
    this.title();
    const chosen = new Set();
    const go = button("compare", "compare the chosen runs", () => {
      location.hash = `#/compare?runs=${[...chosen].map(encodeURIComponent).join(",")}`;
    });
    const note = () => {
      go.disabled = chosen.size < 2;
      go.textContent = chosen.size < 2 ? "choose runs to compare" : `compare ${chosen.size} runs`;
    };
    const place = element("div", {});
    const fill = (found) => {
      if (!found.length) {
        place.replaceChildren(element("p", { class: "note" }, "There are no runs here yet: swiftfl run digits"));
        return;
      }
      place.replaceChildren(table("Runs", ["", "run", "state", "algorithm", "engine", "clients", "changed"], found.map((run) => [
        element("input", { type: "checkbox", "aria-label": `choose ${run.name}`, checked: chosen.has(run.id),
          on: { change: (event) => { event.target.checked ? chosen.add(run.id) : chosen.delete(run.id); note(); } } }),
        element("a", { href: `#/run/${encodeURIComponent(run.id)}`, title: run.path }, run.name), badge(run.state), run.algorithm ?? "–", run.engine ?? "–",
        count(run.clients), element("span", { class: "whole" }, when(run.updated))]), { numeric: [false, false, false, false, false, true, false] }));
    };
    note();
    fill(runs);
    this.show(element("div", { class: "heading" }, element("h1", {}, "Runs"), element("div", { class: "tools" }, go)), place);
    this.listAgain = async () => {
      if (!place.contains(document.activeElement)) fill(await this.source.runs());
    };
  }

  // --- one run ---------------------------------------------------------------------------------------

  async run(id, tab, which) {
    const model = await this.model(id);
    const address = `#/run/${encodeURIComponent(id)}`;
    const client = tab === "client" ? Number(which) : null;
    this.title([client === null ? null : address, model.about.name], ...(client === null ? [] : [[null, model.called(client)]]));
    const body = element("div", { class: "body" });
    const head = new RunHead(model);
    this.shown.push(head);
    const tabs = element("nav", { class: "tabs", "aria-label": "views" }, TABS.map(([name, words]) => (
      element("a", { href: name ? `${address}/${name}` : address, "aria-current": name === tab ? "page" : null },
        name === "clients" && model.isNode ? "Nodes" : words))));
    this.show(head.place, tabs, body);
    this.view(body, model, tab, client);
  }

  view(body, model, tab, client) {
    const open = (i) => { location.hash = `#/run/${encodeURIComponent(model.id)}/client/${i}`; };
    const add = (view) => view && this.shown.push(view);
    if (tab === "") {
      add(new StreamView(body, model));
      const two = element("div", { class: "two" });
      body.append(two);
      const [left, right] = [element("div", {}), element("div", {})];
      two.append(left, right);
      add(new CurvesView(left, model, { only: ["loss"] }));
      add(new GraphView(right, model, open, { height: 330 }));
    } else if (tab === "stream") add(new StreamView(body, model));
    else if (tab === "graph") add(new GraphView(body, model, open, { height: 620 }));
    else if (tab === "curves") add(new CurvesView(body, model));
    else if (tab === "clients") add(new ClientsView(body, model));
    else if (tab === "client") {
      if (!(client >= 0 && client < model.clients)) throw new Error(`There is no client ${client}.`);
      add(new ClientView(body, model, client));
    } else if (tab === "events") {
      add(refusalsPart(body, model));
      add(eventsPart(body, model));
    } else if (tab === "about") {
      add(new PartitionView(body, model));
      configurationPart(body, model);
    } else throw new Error(`There is no view ${tab}.`);
  }

  // --- several ---------------------------------------------------------------------------------------

  async compare(ids) {
    if (!ids.length) throw new Error("Choose runs to compare.");
    this.models.clear();
    this.title([null, `comparison of ${ids.length} runs`]);
    this.show();
    const view = new CompareView(this.main, this.source, ids);
    this.shown.push(view);
    await view.load();
    if (!view.gone) view.models.forEach((model) => this.models.set(model.id, model));
  }
}

// Name, state, progress and the numbers that matter, of a run that may go on.
class RunHead {
  constructor(model) {
    this.model = model;
    this.place = element("div", { class: "head" });
    this.again = () => this.draw();
    ["now", "run", "curves"].forEach((name) => model.addEventListener(name, this.again));
    this.draw();
  }

  destroy() {
    ["now", "run", "curves"].forEach((name) => this.model.removeEventListener(name, this.again));
  }

  draw() {
    const { model } = this;
    const { about, now } = model;
    const total = about.layout?.total;
    const steps = model.steps();
    const rates = now?.columns?.rate ?? [];
    const rate = (model.isNode ? rates.slice(0, 1) : rates).reduce((a, b) => a + (known(b) ? b : 0), 0);
    const lost = model.lost();
    const numbers = [
      ...(model.timeless ? [] : [["time", seconds(now?.time ?? model.last("time"))]]), [model.isNode ? "steps" : "client steps", count(steps || model.last("iteration"))],
      ["epochs", short(model.last("epoch"), 3)], ["test loss", short(model.last("loss"))],
      ...(known(model.last("accuracy")) ? [["accuracy", percent(model.last("accuracy"))]] : []),
      ...(!model.over && rate > 0 ? [["steps/s", short(rate, 3)]] : []),
      ...(model.shares() ? [["waiting", percent(model.shares().waiting)]] : []),
      ...(lost.length ? [["lost", lost.length > 4 ? `${lost.length} clients` : lost.map((i) => model.label(i)).join(", "), "lost"]] : []),
    ];
    const progress = total && steps && !model.over ? [element("progress", { max: total, value: Math.min(steps, total), "aria-label": "progress" }),
      element("span", { class: "note" }, ` ${percent(Math.min(1, steps / total))}${left(model, steps, total, rate)}`)] : [];
    this.place.replaceChildren(
      element("h1", {}, about.name, " ", badge(about.state)),
      element("p", { class: "note" }, [about.config?.algorithm?.name ?? about.algorithm, model.isNode ? null : about.config?.data?.dataset, model.isNode ? `with ${model.names.slice(1).join(", ")}` : `${count(model.clients)} clients`,
        about.config?.topology?.name, about.layout?.engine ?? about.engine].filter(Boolean).join(" · ")),
      element("dl", { class: "numbers" }, numbers.map(([name, value, kind]) => element("div", { class: kind ?? null }, element("dt", {}, name), element("dd", {}, value)))),
      ...(progress.length ? [element("p", { class: "progress" }, progress)] : []));
  }
}

// How long it will still take, of real time only: nobody knows how fast virtual time goes.
function left(model, steps, total, rate) {
  return model.clock === "wall" && rate > 0 ? `, ${seconds((total - steps) / rate)} left` : "";
}

// A word of an address as it was meant; one that nobody can have meant names nothing.
function plainly(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    throw new Error(`The address has a word that is none: ${word}`);
  }
}

function badge(state) {
  return element("span", { class: `badge ${state}` }, state ?? "unknown");
}

function when(unix) {
  return known(unix) ? new Date(1000 * unix).toLocaleString("sv") : "–";
}

function remembered() {
  try {
    return localStorage.getItem("swiftfl-theme");
  } catch {
    return null;
  }
}

async function begin() {
  const embedded = document.getElementById("data");
  const source = embedded ? await EmbeddedSource.read(embedded.textContent) : new ServerSource();
  await new App(source).route();
}

begin();
