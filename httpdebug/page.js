"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 46, RIGHT = 6, TOP = 8, BOTTOM = 6;
  const VIEWS = [60, 120, 300]; // seconds; the first that holds what there is
  const cards = new Map();
  let after = 0, started = "", paused = false, asking = false, timer = 0, lastAnswer = "";

  // el makes an element; text never becomes markup.
  function el(name, attrs, ...children) {
    const svg = ["svg", "path", "line", "rect", "text", "g"].includes(name);
    const e = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    e.append(...children);
    return e;
  }
  function set(e, text) { if (e.textContent !== text) e.textContent = text; }

  function num(x) {
    if (x >= 1e6) return Number((x / 1e6).toPrecision(3)) + " M";
    if (x >= 1e4) return Number((x / 1e3).toPrecision(3)) + " k";
    return x >= 1000 ? x.toFixed(0) : String(Number(x.toPrecision(3)));
  }
  function dur(s) {
    if (!s) return "–";
    const [x, u] = s >= 1 ? [s, " s"] : s >= 1e-3 ? [s * 1e3, " ms"] : [s * 1e6, " µs"];
    return Number(x.toPrecision(3)) + u;
  }
  function ago(s) {
    return s < 1.5 ? "just now" : s < 100 ? s.toFixed(0) + " s ago" : (s / 60).toFixed(0) + " min ago";
  }
  const words = (decision) => decision.replaceAll("_", " ");

  const LANE = { hold: "hold", blind: "blind" };
  for (const d of ["probe", "slow_start", "recover", "resume"]) LANE[d] = "up";
  for (const d of ["backoff", "tail_backoff", "loss_backoff", "outage"]) LANE[d] = "down";
  for (const d of ["test", "restore", "drained"]) LANE[d] = "ask";

  // A series has a key of the points, or fix, a constant of the limiter that is
  // drawn as a labelled level. The first series lies on top.
  function chartsOf(lim) {
    const bounds = [
      { fix: (l) => l.stats.max, label: "ceiling", css: "bound", far: true, dy: 12 },
      { fix: (l) => l.stats.min, label: "floor", css: "bound", far: true, dy: -4 },
    ];
    const flow = [
      { key: "admitted_per_second", label: "admitted", css: "admitted", area: true },
      { key: "shed_per_second", label: "shed", css: "shed" },
    ];
    const calls = { key: "in_flight", label: "in flight", css: "inflight", area: true };
    const waiting = { key: "waiting", label: "waiting", css: "waiting" };
    const target = { key: "target", label: lim.kind, css: "target", now: inForce };
    const latency = { title: "Latency", unit: "log scale", fmt: dur, log: true, series: [
      { key: "fast_seconds", label: "fast", css: "fast" },
      { key: "p99_seconds", label: "p99", css: "p99" },
      { key: "window_seconds", label: "window", css: "window" },
      { key: "baseline_seconds", label: "baseline", css: "baseline" },
      { fix: (l) => l.slo_seconds, label: "SLO", css: "slo", dy: -4 },
    ] };
    return lim.kind === "rate" ? [
      { title: "Rate", unit: "requests per second", fmt: num, series: [target, ...flow, ...bounds] },
      latency,
      { title: "Calls", unit: "peaks", fmt: num, series: [calls, waiting] },
    ] : [
      { title: "Limit", unit: "calls, peaks", fmt: num, series: [target, calls, ...bounds] },
      latency,
      { title: "Traffic", unit: "requests per second", fmt: num, series: flow },
    ];
  }

  // inForce is the number that admits: the whole part of a limit.
  function inForce(lim) { return lim.kind === "rate" ? lim.stats.target : Math.floor(lim.stats.target); }

  function swatch(css) {
    return el("svg", { width: 22, height: 10, "aria-hidden": "true" },
      el("line", { class: "s " + css, x1: 0, x2: 22, y1: 5, y2: 5 }));
  }

  function makeChart(spec) {
    const legend = el("ul", { class: "legend" });
    for (const s of spec.series) {
      if (s.fix) s.name = el("text", { class: "level", x: LEFT + 4 });
      else legend.append(el("li", {}, swatch(s.css), s.label, s.value = el("b")));
      s.path = el("path", { class: "s " + s.css });
      if (s.area) s.fill = el("path", { class: "area " + s.css });
    }
    const c = { spec, grid: el("g"), blind: el("path", { class: "blind" }), cursor: el("line", { class: "cursor" }) };
    c.svg = el("svg", { class: "plot", role: "img" }, c.grid, c.blind,
      ...spec.series.toReversed().flatMap((s) => [s.fill, s.path, s.name].filter(Boolean)), c.cursor);
    c.node = el("section", {}, el("h3", {}, spec.title + " ", el("span", {}, spec.unit)), legend, c.svg);
    return c;
  }

  // makeControls is what the page's owner allows to be changed. The fields hold
  // what was in force when the card was made; they are the user's from then on.
  function makeControls(lim) {
    const said = el("output", { role: "status" });
    async function change(what) {
      set(said, "…");
      try {
        const answer = await fetch(location.pathname, {
          method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ limiter: lim.name, ...what }),
        });
        set(said, answer.ok ? "Done." : (await answer.text()).trim());
      } catch (e) { set(said, "Not sent: " + e.message); }
    }
    const field = (label, value) => {
      const input = el("input", { type: "number", step: "any", min: "0", value, "aria-label": label + " of " + lim.name });
      return [input, el("label", {}, label + " ", input)];
    };
    const button = (label, act) => {
      const b = el("button", { type: "button" }, label);
      b.addEventListener("click", act);
      return b;
    };
    const [min, minLabel] = field("floor", lim.stats.min), [max, maxLabel] = field("ceiling", lim.stats.max);
    const [pause, pauseLabel] = field("seconds", 30);
    return el("details", { class: "controls" }, el("summary", {}, "Change"),
      el("p", {}, minLabel, maxLabel, button("Set bounds", () => change({ min: min.valueAsNumber, max: max.valueAsNumber }))),
      el("p", {}, pauseLabel, button("Pause calls", () => change({ pause_seconds: pause.valueAsNumber })),
        button("End the pause", () => change({ pause_seconds: 0 }))),
      el("p", {}, button("Shadow mode on", () => change({ shadow: true })), button("Shadow mode off", () => change({ shadow: false }))),
      said);
  }

  function makeCard(lim) {
    const card = { points: [], cursor: null, charts: chartsOf(lim).map(makeChart), rows: new Map() };
    card.big = el("b");
    card.bounds = el("p", { class: "bounds" });
    card.notes = el("ul", { class: "notes" });
    card.marks = ["up", "down", "ask", "hold", "blind"].map((css) => el("path", { class: css }));
    card.stripGrid = el("g");
    card.stripCursor = el("line", { class: "cursor" });
    card.strip = el("svg", { class: "strip", role: "img", "aria-label": "Decisions over time" },
      card.stripGrid, ...card.marks, card.stripCursor);
    card.now = el("p", { class: "now" });
    card.body = el("tbody");
    card.box = el("div", { class: "charts", tabindex: "0", role: "group",
      "aria-label": "Charts of " + lim.name + ". Left and right arrow keys read earlier values, Escape returns to now." },
      ...card.charts.map((c) => c.node),
      el("section", {}, el("h3", {}, "Decisions ", el("span", {}, "shaded: no samples")), card.strip, card.now));
    if (lim.controls) card.controls = makeControls(lim);
    card.node = el("article", { class: "card" },
      el("div", { class: "head" },
        el("h2", {}, lim.name, el("span", { class: "kind" }, " " + lim.kind + ", anchor " + lim.anchor)),
        el("p", { class: "big" }, card.big, " " + lim.unit), card.bounds),
      card.notes, ...(card.controls ? [card.controls] : []), card.box,
      el("table", {},
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "decision"), el("th", { scope: "col", class: "n" }, "times"),
          el("th", { scope: "col", class: "n" }, "last"), el("th", { scope: "col", class: "n" }, lim.unit), el("th", { scope: "col", class: "why" }, "why"))),
        card.body));
    card.box.addEventListener("pointermove", (e) => {
      const r = card.strip.getBoundingClientRect();
      const f = (e.clientX - r.left - LEFT) / (r.width - LEFT - RIGHT);
      point(card, f < 0 || f > 1 ? null : card.from + f * (card.to - card.from));
    });
    card.box.addEventListener("pointerleave", () => point(card, null));
    card.box.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (e.key === "Escape") point(card, null);
      if (!step || !card.points.length) return;
      e.preventDefault();
      const at = card.cursor === null ? card.points.length : nearest(card);
      const to = card.points[Math.max(0, at + step)];
      point(card, to ? to.t : null);
    });
    new ResizeObserver(() => draw(card)).observe(card.box);
    return card;
  }

  function point(card, t) { card.cursor = t; draw(card); }

  function nearest(card) {
    let best = 0;
    card.points.forEach((p, i) => {
      if (Math.abs(p.t - card.cursor) < Math.abs(card.points[best].t - card.cursor)) best = i;
    });
    return best;
  }

  function update(lim) {
    let card = cards.get(lim.name);
    if (!card) {
      card = makeCard(lim);
      cards.set(lim.name, card);
      document.getElementById("cards").append(card.node);
    }
    card.lim = lim;
    const { elapsed_seconds: times, ...columns } = lim.points;
    times.forEach((t, i) => {
      const p = { t };
      for (const k in columns) p[k] = columns[k][i];
      card.points.push(p);
    });
    card.to = lim.elapsed_seconds;
    card.points = card.points.filter((p) => p.t >= card.to - lim.span_seconds);
    const have = card.points.length ? card.to - card.points[0].t : 0;
    card.from = card.to - (VIEWS.find((v) => v >= have && v < lim.span_seconds) || lim.span_seconds);

    const s = lim.stats;
    set(card.big, num(inForce(lim)));
    set(card.bounds, "floor " + num(s.min) + ", ceiling " + num(s.max) +
      (lim.slo_seconds ? ", SLO " + dur(lim.slo_seconds) : "") + " · " + s.samples + " samples in the last tick");
    const notes = lim.notes.map((n) => n.level + n.text).join("\n");
    if (notes !== card.noted) {
      card.noted = notes;
      card.notes.replaceChildren(...(lim.notes.length ? lim.notes : [{ level: "none", text: "Nothing remarkable." }])
        .map((n) => el("li", { class: n.level }, n.text)));
    }
    card.reasons = {};
    for (const d of lim.decisions) {
      card.reasons[d.decision] = d.reason;
      let row = card.rows.get(d.decision);
      if (!row) {
        row = { n: el("td", { class: "n" }), last: el("td", { class: "n" }), move: el("td", { class: "n" }) };
        row.node = el("tr", {}, el("th", { scope: "row" }, words(d.decision)), row.n, row.last, row.move, el("td", { class: "why" }, d.reason));
        card.rows.set(d.decision, row);
        const order = lim.decisions.map((x) => card.rows.get(x.decision)).filter(Boolean);
        card.body.replaceChildren(...order.map((r) => r.node));
      }
      set(row.n, String(d.count));
      set(row.last, ago(card.to - d.last_seconds));
      set(row.move, d.target_before === d.target_after ? num(d.target_after) : num(d.target_before) + " → " + num(d.target_after));
      row.node.className = d.decision === s.decision ? "current" : "";
    }
    draw(card);
  }

  // ticksOf returns round numbers inside [lo, hi].
  function ticksOf(lo, hi, log) {
    const out = [];
    if (log) {
      const steps = hi / lo > 1000 ? [1] : hi / lo > 50 ? [1, 3] : [1, 2, 5];
      for (let e = Math.floor(Math.log10(lo)); e <= Math.log10(hi); e++)
        for (const m of steps) { const x = m * 10 ** e; if (x >= lo && x <= hi) out.push(x); }
      return out;
    }
    const raw = hi / 3, unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
    for (let x = 0; x <= hi; x += step) out.push(x);
    return out;
  }

  function timeGrid(card, w, h, x, labels) {
    const out = [], view = card.to - card.from;
    let step = view <= 60 ? 15 : view <= 120 ? 30 : view <= 300 ? 60 : view / 5;
    if ((w - LEFT) * step / view < 70) step *= 2; // the labels would touch
    for (let back = 0; back <= view + 0.01; back += step) {
      const at = x(card.to - back);
      if (!labels) { out.push(el("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: h - BOTTOM })); continue; }
      const text = back === 0 ? "now" : back < 60 || back % 60 ? "−" + Math.round(back) + " s" : "−" + back / 60 + " min";
      out.push(el("text", { x: at, y: h - 2, "text-anchor": back === 0 ? "end" : back >= view - 0.01 ? "start" : "middle" }, text));
    }
    return out;
  }

  function draw(card) {
    const w = card.strip.getBoundingClientRect().width;
    if (!w || !card.lim) return;
    const x = (t) => LEFT + (w - LEFT - RIGHT) * (t - card.from) / (card.to - card.from);
    const seen = card.points.filter((p) => p.t >= card.from);
    const gap = 3 * Math.max(card.lim.tick_seconds, 0.5); // a longer one breaks the line
    const at = card.cursor !== null && card.points.length ? card.points[nearest(card)] : null;
    for (const c of card.charts) drawChart(card, c, w, x, seen, gap, at);
    drawStrip(card, w, x, seen, at);
    const d = at ? at.decision : card.lim.stats.decision;
    card.now.replaceChildren(
      el("span", { class: "when" }, at ? ago(card.to - at.t) + ": " : "now: "),
      el("b", {}, words(d)), ". " + (card.reasons[d] || ""));
  }

  function drawChart(card, c, w, x, seen, gap, at) {
    const h = c.svg.getBoundingClientRect().height, { spec } = c, lim = card.lim;
    let top = 0, low = Infinity;
    const reach = (v) => { if (v > 0) { top = Math.max(top, v); low = Math.min(low, v); } };
    for (const s of spec.series) if (s.key) for (const p of seen) reach(p[s.key]);
    for (const s of spec.series) if (s.fix) {
      s.v = s.fix(lim);
      s.out = s.far && s.v > 2.5 * top && top > 0; // would flatten the rest
      if (!s.out) reach(s.v);
    }
    if (!top) { top = 1; low = 1; }
    if (spec.log) { low = Math.min(low, top / 4) * 0.8; top *= 1.25; } else { low = 0; top *= 1.08; }
    const scale = spec.log ? (v) => Math.log(v / low) / Math.log(top / low) : (v) => v / top;
    const y = (v) => h - BOTTOM - (h - TOP - BOTTOM) * scale(v);
    const lines = ticksOf(low, top, spec.log).flatMap((v) => [
      el("line", { class: v ? "grid" : "axis", x1: LEFT, x2: w - RIGHT, y1: y(v), y2: y(v) }),
      el("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, spec.fmt(v).replace("–", "0").replace(" ", "\u2009")),
    ]);
    c.grid.replaceChildren(...timeGrid(card, w, h, x, false), ...lines);

    for (const s of spec.series) {
      let v = s.v;
      if (s.key) {
        let d = "", fill = "", first = 0, last = null;
        const close = () => { if (last !== null) fill += "L" + last + " " + y(0) + "L" + first + " " + y(0) + "Z"; };
        let before = -Infinity;
        for (const p of seen) {
          if (spec.log && !(p[s.key] > 0)) { before = -Infinity; continue; }
          const px = x(p.t).toFixed(1), step = px + " " + y(p[s.key]).toFixed(1), move = p.t - before > gap;
          d += (move ? "M" : "L") + step;
          if (s.area) {
            if (move) { close(); first = px; }
            fill += (move ? "M" : "L") + step;
            last = px;
          }
          before = p.t;
        }
        s.path.setAttribute("d", d);
        if (s.area) { close(); s.fill.setAttribute("d", fill); }
        const p = at || card.points[card.points.length - 1];
        v = !at && s.now ? s.now(lim) : p ? p[s.key] : 0;
      } else {
        s.path.setAttribute("d", s.v > 0 && !s.out ? "M" + LEFT + " " + y(s.v) + "H" + (w - RIGHT) : "");
        set(s.name, s.v > 0 ? s.label + " " + spec.fmt(s.v) + (s.out ? " ↑" : "") : "");
        if (s.v > 0) s.name.setAttribute("y", s.out ? TOP + 4 : y(s.v) + s.dy);
        continue;
      }
      set(s.value, spec.fmt(v || 0));
    }
    c.blind.setAttribute("d", blocks(seen, x, gap, (p) => p.samples === 0, TOP, h - TOP - BOTTOM));
    moveCursor(c.cursor, at, x, h);
    c.svg.setAttribute("aria-label", spec.title + " of " + lim.name + ": " +
      spec.series.map((s) => s.fix ? s.name.textContent : s.label + " " + s.value.textContent).filter(Boolean).join(", "));
  }

  // blocks is a path of one rectangle for every point that is wanted.
  function blocks(seen, x, gap, want, y, height) {
    let d = "";
    seen.forEach((p, i) => {
      const from = i && p.t - seen[i - 1].t < gap ? seen[i - 1].t : p.t - gap / 3;
      if (want(p)) d += "M" + x(from).toFixed(1) + " " + y + "H" + x(p.t).toFixed(1) + "v" + height + "H" + x(from).toFixed(1) + "Z";
    });
    return d;
  }

  function drawStrip(card, w, x, seen, at) {
    const h = 66, gap = 3 * Math.max(card.lim.tick_seconds, 0.5);
    const lanes = { up: [2, 9], hold: [17, 3], down: [26, 9], ask: [38, 9], blind: [2, 45] };
    ["up", "down", "ask", "hold", "blind"].forEach((lane, i) => {
      card.marks[i].setAttribute("d", blocks(seen, x, gap, (p) => LANE[p.decision] === lane, ...lanes[lane]));
    });
    card.stripGrid.replaceChildren(
      ...[["up", 10], ["hold", 22], ["down", 34], ["test", 46]].map(([text, y]) => el("text", { x: LEFT - 6, y, "text-anchor": "end" }, text)),
      ...timeGrid(card, w, h, x, true));
    moveCursor(card.stripCursor, at, x, 48);
  }

  function moveCursor(line, at, x, h) {
    line.setAttribute("visibility", at ? "visible" : "hidden");
    if (at) for (const [k, v] of Object.entries({ x1: x(at.t), x2: x(at.t), y1: 0, y2: h })) line.setAttribute(k, v);
  }

  const state = document.getElementById("state"), pause = document.getElementById("pause");
  async function poll() {
    if (paused || asking) return;
    clearTimeout(timer);
    asking = true;
    let wait = 1000;
    try {
      const answer = await fetch("?format=json&after=" + after, { cache: "no-store" });
      if (!answer.ok) throw new Error("status " + answer.status);
      const report = await answer.json();
      if (report.started !== started) { // another process: its points have other numbers
        for (const c of cards.values()) c.node.remove();
        cards.clear();
        if (after > 0) { report.limiters = []; report.seq = 0; wait = 0; }
        started = report.started;
      }
      after = report.seq;
      report.limiters.forEach(update);
      lastAnswer = new Date().toLocaleTimeString();
      state.className = "";
      set(state, cards.size ? "live" : "No limiter is watched.");
    } catch (e) {
      state.className = "bad";
      set(state, "No answer" + (lastAnswer ? " since " + lastAnswer : "") + ". Still trying.");
    }
    asking = false;
    timer = setTimeout(poll, wait);
  }
  pause.addEventListener("click", () => {
    paused = !paused;
    set(pause, paused ? "Resume" : "Pause");
    if (paused) set(state, "paused at " + lastAnswer); else poll();
  });
  poll();
})();
