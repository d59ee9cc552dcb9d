"use strict";
(() => {
  const { charts, timeline, document: facts } = JSON.parse(document.getElementById("data").textContent);
  const views = {};
  const options = { mode: "vega", renderer: "svg", actions: false, tooltip: false, hover: false };
  const made = [...document.querySelectorAll("[data-chart]")].map(async (holder) => {
    const name = holder.dataset.chart;
    views[name] = (await vegaEmbed(holder, charts[name], options)).view;
  });

  // -- rows of the graph beside those of the table --------------------------------------------------------------------

  const graphs = [...document.querySelectorAll(".graph")];
  const table = document.querySelector(".edges tbody");
  const beside = matchMedia("(min-width: 1200px)");
  const initial = Object.fromEntries(graphs.map(({ dataset: { chart } }) =>
    [chart, charts[chart].signals.find((signal) => signal.name === "centres").value]));

  async function align() {
    if (graphs.length !== 1) return;
    const [graph] = graphs;
    const view = views[graph.dataset.chart];
    const top = table.getBoundingClientRect().top;
    const rows = [...table.rows].map((row) => row.getBoundingClientRect());
    const centres = rows.map((row) => row.top + row.height / 2 - top);
    const apart = !beside.matches;
    const height = apart ? charts[graph.dataset.chart].height : table.getBoundingClientRect().height;
    await view.signal("centres", apart ? initial[graph.dataset.chart] : centres).height(height).runAsync();
    graph.style.marginTop = "0";
    const head = graph.querySelector("svg").getBoundingClientRect().top + view.origin()[1];
    graph.style.marginTop = apart ? "0" : `${table.getBoundingClientRect().top - head}px`;
  }

  // -- the window of the timelines ---------------------------------------------------------------------------------

  const lanes = [...document.querySelectorAll(".timeline")];
  const shown = { lo: timeline.lo, hi: timeline.hi };
  const position = document.getElementById("position");
  const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const LEAST = 200; // cycles

  function show(lo, hi) {
    const width = Math.min(Math.max(hi - lo, LEAST), timeline.end);
    const middle = (lo + hi) / 2;
    shown.lo = Math.min(Math.max(middle - width / 2, 0), timeline.end - width);
    shown.hi = shown.lo + width;
    for (const holder of lanes) {
      views[holder.dataset.chart].signal("lo", shown.lo).signal("hi", shown.hi).runAsync();
    }
    tell();
  }

  function tell() {
    const width = shown.hi - shown.lo;
    const blocks = (width / timeline.block).toFixed(1);
    document.getElementById("window").textContent =
      `cycles ${number.format(shown.lo)} to ${number.format(shown.hi)} of ${number.format(timeline.end)}, as long as ${blocks} key blocks of the steady state`;
    position.value = timeline.end > width ? Math.round((1000 * shown.lo) / (timeline.end - width)) : 0;
    position.disabled = timeline.end <= width;
    document.body.dataset.lo = shown.lo;
    document.body.dataset.hi = shown.hi;
  }

  function zoom(factor, at = (shown.lo + shown.hi) / 2) {
    const width = Math.min(Math.max((shown.hi - shown.lo) * factor, LEAST), timeline.end);
    const lo = at - ((at - shown.lo) / (shown.hi - shown.lo)) * width;
    show(lo, lo + width);
  }

  function move(share) {
    const by = (shown.hi - shown.lo) * share;
    show(shown.lo + by, shown.hi + by);
  }

  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.5), right: () => move(0.5),
    ...Object.fromEntries(Object.entries(timeline.windows).map(([name, window]) => [name, () => show(...window)])),
  };
  for (const button of document.querySelectorAll("[data-go]")) {
    button.addEventListener("click", actions[button.dataset.go]);
  }
  position.addEventListener("input", () => {
    const width = shown.hi - shown.lo;
    const lo = (position.value / 1000) * (timeline.end - width);
    show(lo, lo + width);
  });

  document.getElementById("arrows").addEventListener("change", (event) => {
    for (const holder of lanes) views[holder.dataset.chart].signal("arrows", event.target.checked).runAsync();
  });

  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "whole" };
  for (const holder of lanes) {
    const view = () => views[holder.dataset.chart];
    const cyclesAt = (event) => {
      const left = holder.getBoundingClientRect().left + view().origin()[0];
      return shown.lo + ((event.clientX - left) / view().width()) * (shown.hi - shown.lo);
    };
    holder.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    holder.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !sideways) return; // the page scrolls
      event.preventDefault();
      if (sideways) move((event.deltaX || event.deltaY) / view().width());
      else zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150), cyclesAt(event));
    }, { passive: false });
    holder.addEventListener("dblclick", (event) => zoom(0.5, cyclesAt(event)));
    let grabbed = null;
    holder.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.clientX, lo: shown.lo, hi: shown.hi };
      holder.setPointerCapture(event.pointerId);
      holder.classList.add("dragged");
    });
    holder.addEventListener("pointermove", (event) => {
      if (!grabbed) return;
      const by = ((grabbed.x - event.clientX) / view().width()) * (grabbed.hi - grabbed.lo);
      show(grabbed.lo + by, grabbed.hi + by);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      holder.addEventListener(end, () => { grabbed = null; holder.classList.remove("dragged"); });
    }
  }

  // -- what a bar is -------------------------------------------------------------------------------------------------

  function words(span) {
    const cycles = `${number.format(span.end - span.start)} cycles, ${number.format(span.start)} to ${number.format(span.end)}`;
    if (span.what === "wait") return `${span.lane} waits for ${span.edge}: ${cycles}; last to arrive: ${span.by}, at ${number.format(span.released)}`;
    const detail = span.detail ? ` (${span.role ? span.detail : `up to ${span.detail}`})` : "";
    const queued = span.queued ? `, of these ${number.format(span.queued)} in the queue for MUFU or issue` : "";
    const pieces = span.pieces > 1 ? ` in ${span.pieces} pieces` : "";
    return `${span.lane}: ${span.what}${pieces}${detail}${span.role ? `, asked for by ${span.role}` : ""}: ${cycles}${queued}`;
  }
  function explain(side) {
    const name = facts.sides.length > 1 ? `${side.name}: ` : "";
    views[`timeline-${side.name}`].addEventListener("mouseover", (_, item) => {
      const n = item?.datum?.n;
      if (n === undefined) return;
      document.getElementById("detail").textContent = `${name}${words(side.time.spans[n])}.`;
    });
  }

  tell();
  Promise.all(made).then(async () => {
    facts.sides.forEach(explain);
    await align();
    addEventListener("resize", align);
    document.documentElement.dataset.drawn = performance.now().toFixed(0);
  });
})();
