// Where the views get their data: from the server, or from what a report has embedded.
// Both have the same methods, those of the table in ARCHITECTURE.md ("Seeing a run").

export class Refused extends Error {}
export class Missing extends Error {}

export class ServerSource {
  constructor(base = "api/", token = new URLSearchParams(location.search).get("token")) {
    this.base = base;
    this.token = token;
    this.embedded = false;
  }

  address(path, query = {}) {
    const found = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined) found.set(name, value);
    }
    if (this.token !== null) found.set("token", this.token);
    const text = found.toString();
    return this.base + path + (text ? `?${text}` : "");
  }

  async get(path, query, signal) {
    const reply = await fetch(this.address(path, query), { signal, cache: "no-cache", credentials: "omit" });
    if (reply.status === 401 || reply.status === 403) throw new Refused("The address lacks the right token.");
    if (reply.status === 404) throw new Missing(await said(reply));
    if (!reply.ok) throw new Error(await said(reply));
    return reply.json();
  }

  runs() { return this.get("runs"); }
  run(id) { return this.get(`runs/${encodeURIComponent(id)}`); }
  curves(id) { return this.get(`runs/${encodeURIComponent(id)}/curves`); }
  events(id, after = 0) { return this.get(`runs/${encodeURIComponent(id)}/events`, { after }); }
  now(id) { return this.get(`runs/${encodeURIComponent(id)}/now`); }
  stream(id, view, signal) { return this.get(`runs/${encodeURIComponent(id)}/stream`, view, signal); }
  client(id, i) { return this.get(`runs/${encodeURIComponent(id)}/clients/${i}`); }
  compare(ids) { return this.get("compare", { runs: ids.join(",") }); }

  // Calls `changed({run, changed})` as runs go on, `how("live"|"polling")` when that changes; returns what ends it.
  live(changed, how) {
    const all = ["now", "curves", "events", "steps", "run", "runs"];
    let asking = null;
    const poll = () => {
      if (asking === null) {
        how("polling");
        asking = setInterval(() => changed({ run: null, changed: all }), 1000);
      }
    };
    const stream = new EventSource(this.address("live"));
    stream.onopen = () => {
      clearInterval(asking);
      asking = null;
      how("live");
    };
    stream.onmessage = (message) => changed(JSON.parse(message.data));
    stream.onerror = poll;
    return () => {
      clearInterval(asking);
      stream.close();
    };
  }
}

async function said(reply) {
  const text = await reply.text();
  try {
    const value = JSON.parse(text);
    return value.error || value.detail || text;
  } catch {
    return text || `the server replied ${reply.status}`;
  }
}

// --- embedded --------------------------------------------------------------------------------------

const FEW = 4000; // steps in view that are drawn one by one

export class EmbeddedSource {
  // `data`: {runs, compare, of: {ID: {about, curves, events, now, stream, steps, clients}}}
  constructor(data) {
    this.data = data;
    this.embedded = true;
    this.pictures = {};
  }

  static async read(text) {
    const packed = bytes(text.trim());
    const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new EmbeddedSource(JSON.parse(await new Response(plain).text()));
  }

  of(id) {
    const found = this.data.of[id];
    if (!found) throw new Error(`this report has no run ${id}`);
    return found;
  }

  async runs() { return this.data.runs; }
  async run(id) { return this.of(id).about; }
  async curves(id) { return this.of(id).curves; }
  async events(id) { return this.of(id).events; }
  async now(id) { return this.of(id).now; }
  async compare() { return this.data.compare; }

  async client(id, i) {
    const { about, now, events, steps, stream = null } = this.of(id);
    const neighbours = [];
    (about.graph?.edges || []).forEach(([one, other], k) => {
      if (one === i) {
        neighbours.push({
          client: other, weight: now?.weights?.[k] ?? about.graph.weights?.[k] ?? null,
          version: now?.edges?.version?.[k] ?? null, since: now?.edges?.since?.[k] ?? null,
        });
      }
    });
    const rows = (steps || []).filter((step) => step[0] === i).slice(-200).map(
      ([, c, start, compute, waiting, communication, loss, together = 1, age = null]) => (
        { c, steps: together, start, compute, waiting, communication, loss, age }));
    return { client: i, neighbours, rows, left: !steps && stream !== null, events: events.events.filter((event) => event.client === i) };
  }

  async stream(id, view) {
    const { stream, steps } = this.of(id);
    if (!stream) return null;
    const whole = this.pictures[id] ||= { ...stream, states: bytes(stream.state), shares: bytes(stream.share) };
    const asked = {
      from: view.from ?? whole.begin, to: view.to ?? whole.end,
      first: Math.max(0, view.first ?? 0), last: Math.min(whole.last, view.last ?? whole.last), bins: view.bins,
    };
    const few = within(steps, asked);
    return { ...cut(whole, asked), begin: whole.begin, end: whole.end, marks: whole.marks, steps: few };
  }

  live() { return () => {}; }
}

function within(steps, { from, to, first, last }) {
  if (!steps) return null;
  const found = [];
  for (const step of steps) {
    const [i, , start, compute, waiting, communication] = step;
    if (i < first || i > last || start > to || start + compute + waiting + communication < from) continue;
    found.push(step);
    if (found.length > FEW) return null;
  }
  return found;
}

// The bins and rows that are asked for, joined to at most `bins`: each gets the state most of its parts have.
function cut(whole, { from, to, first, last, bins }) {
  const width = (whole.to - whole.from) / whole.bins;
  const start = Math.max(0, Math.floor((from - whole.from) / width));
  const stop = Math.min(whole.bins, Math.max(start + 1, Math.ceil((to - whole.from) / width)));
  const each = Math.max(1, Math.ceil((stop - start) / bins));
  const columns = Math.ceil((stop - start) / each);
  const skipped = Math.floor((first - whole.first) / whole.per_row);
  const rows = Math.floor((last - whole.first) / whole.per_row) - skipped + 1;
  const state = new Uint8Array(rows * columns);
  const share = new Uint8Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const sums = [0, 0, 0, 0];
      const begin = start + column * each;
      const end = Math.min(stop, begin + each);
      for (let k = begin; k < end; k++) {
        const place = (skipped + row) * whole.bins + k;
        sums[whole.states[place]] += whole.shares[place];
      }
      const found = sums.indexOf(Math.max(sums[1], sums[2], sums[3]), 1);
      const there = sums[found] > 0;
      state[row * columns + column] = there ? found : 0;
      share[row * columns + column] = there ? Math.min(255, Math.round(sums[found] / (end - begin))) : 0;
    }
  }
  return {
    from: whole.from + start * width, to: whole.from + (start + columns * each) * width,
    bins: columns, first: whole.first + skipped * whole.per_row, last, rows, per_row: whole.per_row, states: state, shares: share,
  };
}

export function bytes(text) {
  const plain = atob(text);
  const found = new Uint8Array(plain.length);
  for (let k = 0; k < plain.length; k++) found[k] = plain.charCodeAt(k);
  return found;
}
