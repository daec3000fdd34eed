"use strict";
// DATA holds the content of the page, see page.py; every choice redraws its figure.

const byId = (id) => document.getElementById(id);
const LAYOUT = { margin: { l: 70, r: 20, t: 20, b: 55 }, hovermode: "closest", font: { size: 13 }, template: "none" };
// Leaves room for long tick labels and for titles of several lines.
const axisOf = (text, more = {}) =>
  ({ title: { text: wrapped(text), standoff: 12 }, automargin: true, zeroline: false, ...more });
if (window.innerWidth < 600) LAYOUT.legend = { orientation: "h", y: -0.35 };
const OPTIONS = { responsive: true, displaylogo: false };
const settings = Object.keys(DATA.settings);
// On a phone, labels and colour bars beside a figure would leave no room for it.
const isNarrow = () => window.innerWidth < 600;

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// Makes a row of choices, {name: [[value, text], ...]}; calls `draw` with the chosen values now and at every change.
function controls(id, choices, draw) {
  const selects = {};
  const update = () =>
    draw(Object.fromEntries(Object.entries(selects).map(([name, one]) => [name, one.value])), selects);
  for (const [name, values] of Object.entries(choices)) {
    const label = element("label", name + " ", byId(id + "-controls"));
    const select = element("select", undefined, label);
    select.id = `${id}-${name}`;
    for (const [value, text] of values) {
      const option = element("option", text, select);
      option.value = value;
      option.selected = text === "rl";
    }
    select.addEventListener("change", update);
    selects[name] = select;
  }
  update();
  return { selects, update };
}

const same = (names) => names.map((name) => [name, name]);
const numbered = (names) => names.map((name, number) => [number, name]);
const nameOf = (point) => settings.map((name) => `${name} = ${DATA.settings[name][point]}`).join(", ");
const valuesAt = (name, points) => [...new Set(points.map((point) => String(DATA.settings[name][point])))];
// In a grid, the user chooses a value of every axis; in a list, the user chooses the point.
const pointChoice = (points) => DATA.isGrid
  ? Object.fromEntries(settings.map((name) => [name, same(valuesAt(name, points))]))
  : settings.length ? { point: points.map((point, place) => [place, nameOf(point)]) } : {};
const placeOf = (points, chosen) => DATA.isGrid
  ? points.findIndex((point) => settings.every((name) => String(DATA.settings[name][point]) === chosen[name]))
  : Number(chosen.point ?? 0);
const clear = (colour) => colour + "33";

function band(x, [mean, low = [], high = []], name, colour, dash = "solid") {
  const there = x.map((_, place) => place).filter((place) => mean[place] !== null);
  const pick = (values) => there.map((place) => values[place]);
  // A single run has no limits.
  const bounded = there.filter((place) => typeof low[place] === "number");
  const [xs, lows, highs] = [x, low, high].map((values) => bounded.map((place) => values[place]));
  const limits = bounded.length
    ? [{ x: xs.concat([...xs].reverse()), y: highs.concat([...lows].reverse()), fill: "toself",
         fillcolor: clear(colour), line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: name,
         mode: "lines" }]
    : [];
  return [...limits, { x: pick(x), y: pick(mean), name, legendgroup: name, mode: "lines+markers",
                       marker: { size: 5, color: colour }, line: { color: colour, width: 2, dash } }];
}

const DASHES = ["solid", "dash", "dot", "dashdot"];
const styleOf = (number) => [DATA.colours.palette[number % DATA.colours.palette.length],
                             DASHES[Math.floor(number / DATA.colours.palette.length) % DASHES.length]];

function drawCurves(chosen, selects) {
  const one = DATA.curves.variables[chosen.variable];
  const points = DATA.curves.points;
  for (const [name, select] of Object.entries(selects)) {
    select.disabled = name === "policy" ? !chosen.together : chosen.together && (name === chosen.together || name === "point");
  }
  const together = () => {
    const places = points.map((_, place) => place).filter((place) => !DATA.isGrid || settings.every((name) =>
      name === chosen.together || String(DATA.settings[name][points[place]]) === chosen[name]));
    const policy = Math.max(0, one.policies.indexOf(chosen.policy));
    return places.flatMap((place, number) => {
      const name = DATA.isGrid ? `${chosen.together} = ${DATA.settings[chosen.together][points[place]]}` : nameOf(points[place]);
      return band(one.x, one.values[place][policy], name, ...styleOf(number));
    });
  };
  const traces = chosen.together ? together() : one.policies.flatMap((policy, place) =>
    band(one.x, one.values[placeOf(points, chosen)][place], policy, DATA.colours.policies[policy], DATA.dashes[policy]));
  Plotly.react("curves", traces,
    { ...LAYOUT, showlegend: true, xaxis: axisOf(one.along), yaxis: axisOf(one.label) }, OPTIONS);
}

// Wraps long names of variables, which would be cut off.
function wrapped(text, fewest = 25, most = 45) {
  return text.replace(new RegExp(`(.{${fewest},${most}}?) `, "g"), "$1<br>");
}

function drawMap(chosen) {
  const one = DATA.maps[chosen.variable];
  const place = Math.max(0, one.policies.indexOf(chosen.policy));
  const values = one.values.map((byPolicy) => byPolicy[place]);
  // A list of points is not a grid: all points are shown, whatever their other settings.
  const fixed = DATA.isGrid ? settings.filter((name) => name !== chosen.x && name !== chosen.y) : [];
  const rows = values.map((_, point) => point)
    .filter((point) => fixed.every((name) => String(DATA.settings[name][point]) === chosen[name]));
  const unique = (name) => [...new Set(rows.map((point) => DATA.settings[name][point]))];
  if (chosen.y !== chosen.x) {
    const [x, y] = [unique(chosen.x), unique(chosen.y)];
    const z = y.map(() => x.map(() => null));
    for (const point of rows) {
      z[y.indexOf(DATA.settings[chosen.y][point])][x.indexOf(DATA.settings[chosen.x][point])] = values[point][0];
    }
    const heat = { type: "heatmap", x: x.map(String), y: y.map(String), z, colorscale: "Cividis",
                   // Numbers in very small cells are unreadable.
                   texttemplate: x.length <= (isNarrow() ? 4 : 10) && y.length <= 15 ? "%{z:.4g}" : undefined,
                   colorbar: isNarrow() ? { orientation: "h", y: -0.25, yanchor: "top", thickness: 12 } : { thickness: 20 },
                   hovertemplate: `${chosen.x} %{x}<br>${chosen.y} %{y}<br>%{z}<extra></extra>` };
    const title = { text: isNarrow() ? wrapped(one.label) : wrapped(one.label, 60, 90), font: { size: isNarrow() ? 11 : 13 } };
    const margin = isNarrow() ? { l: 40, r: 5, t: 75, b: 90 } : { ...LAYOUT.margin, t: 65 };
    Plotly.react("points", [heat], { ...LAYOUT, margin, title,
                                     xaxis: axisOf(chosen.x, { type: "category" }),
                                     yaxis: axisOf(chosen.y, { type: "category" }) }, OPTIONS);
    return;
  }
  const x = rows.map((point) => DATA.settings[chosen.x][point]);
  const traces = one.policies.flatMap((policy, number) => {
    const pick = (which) => rows.map((point) => one.values[point][number][which] ?? null);
    const [name, colour] = [policy || chosen.variable, DATA.colours.policies[policy] ?? "#0072B2"];
    return DATA.isGrid ? band(x, [pick(0), pick(1), pick(2)], name, colour, DATA.dashes[policy])
      : [{ x, y: pick(0), name, mode: "markers", marker: { color: colour, size: 6 }, text: rows.map(nameOf) }];
  });
  Plotly.react("points", traces,
    { ...LAYOUT, showlegend: true, xaxis: axisOf(chosen.x), yaxis: axisOf(one.label) }, OPTIONS);
}

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star"];
const INSIDE = "#555555";

// Green contributes most to the brightness of a colour.
const readable = (colour) => (parseInt(colour.slice(3, 5), 16) < 0x75 ? "#ffffff" : "#000000");

// The hover text of a device names its number, its cluster, its transmitter and its points.
function devicesOf(place, cluster, links, before, after) {
  const told = (counts) => counts.map((n, l) => [DATA.graphs.classes[l], n]).filter(([, n]) => n > 0)
    .map(([name, n]) => `${name} ${n}`).join(", ") || "nothing";
  const text = place.map((_, i) => `device ${i}, cluster ${cluster[i]}<br>` +
    (links[i] === i || links[i] < 0 ? "no transmitter" : `receives from ${links[i]}`) +
    `<br>before: ${told(before[i])}<br>after: ${told(after[i])}`);
  const palette = DATA.colours.clusters;
  const colours = cluster.map((k) => palette[k % palette.length]);
  return { x: place.map((p) => p[0]), y: place.map((p) => p[1]), hovertext: text, hoverinfo: "text",
    text: place.map((_, i) => String(i)), textfont: { size: 9, color: colours.map(readable) },
    mode: "markers+text", name: "device, by cluster", hoverlabel: { align: "left" }, cliponaxis: false,
    // With more clusters than colours, the colours repeat with another shape.
    marker: { size: 17, opacity: 1, line: { color: "white", width: 1 }, color: colours,
      symbol: cluster.map((k) => SYMBOLS[Math.floor(k / palette.length) % SYMBOLS.length]) } };
}

function linksOf(place, cluster, links) {
  const arrows = links.map((j, i) => [j, i]).filter(([j, i]) => j !== i && j >= 0).map(([j, i]) => ({
    x: place[i][0], y: place[i][1], ax: place[j][0], ay: place[j][1], xref: "x", yref: "y", axref: "x", ayref: "y",
    text: "", arrowhead: 2, arrowsize: 1.1, arrowwidth: 1.3, standoff: 9, startstandoff: 9,
    opacity: 0.8, arrowcolor: cluster[i] === cluster[j] ? INSIDE : DATA.colours.inter }));
  // Plotly cannot draw dashed arrows, so a dashed line lies under the head of a link between clusters.
  const inter = arrows.filter((arrow) => arrow.arrowcolor === DATA.colours.inter);
  const dashed = { x: inter.flatMap((a) => [a.ax, a.x, null]), y: inter.flatMap((a) => [a.ay, a.y, null]),
    mode: "lines", line: { dash: "dash", width: 1.5, color: DATA.colours.inter }, hoverinfo: "skip",
    name: "link between clusters" };
  for (const arrow of inter) {
    const [dx, dy] = [arrow.x - arrow.ax, arrow.y - arrow.ay];
    [arrow.ax, arrow.ay, arrow.startstandoff] = [arrow.x - dx * 0.12, arrow.y - dy * 0.12, 0];
  }
  const legend = { x: [null], y: [null], mode: "lines", line: { color: INSIDE, width: 1.5 },
    name: "link inside a cluster" };
  return [arrows, [legend, dashed]];
}

let shownRun = "";

function drawGraph(chosen, selects) {
  const graphs = DATA.graphs;
  const at = (name) => graphs[name][placeOf(graphs.points, chosen)][chosen.run];
  const isDone = at("done");
  // A newly chosen run opens in the state of its exchange.
  const run = `${placeOf(graphs.points, chosen)} ${chosen.run}`;
  if (run !== shownRun && isDone) selects.state.value = chosen.state = String(at("exchange_state"));
  shownRun = run;
  byId("graph-note").textContent = !isDone ? "This run is not finished."
    : `The exchange of this run happened in state ${graphs.states[at("exchange_state")]}: ` +
      "the graph of that state determines the points after the exchange.";
  // Devices of other points, and of unfinished runs, have no position.
  const isThere = at("position").map((p) => isDone && p[0] !== null);
  const place = at("position").map((p, i) => (isThere[i] ? p : [null, null]));
  const links = at("links")[chosen.policy][chosen.state].map((j, i) => (isThere[i] ? j : -1));
  const [arrows, lines] = linksOf(place, at("cluster"), links);
  const devices = devicesOf(place, at("cluster").map((k) => Math.max(0, k)), links, at("counts_before"),
                            at("counts")[chosen.policy]);
  const square = (name) => axisOf(`${name} (m)`, { constrain: "domain", visible: isDone });
  Plotly.react("graph", [...lines, devices], { ...LAYOUT, margin: { ...LAYOUT.margin, t: 65 }, showlegend: true,
    legend: { orientation: "h", x: 0.5, xanchor: "center", y: 1.01, yanchor: "bottom" }, annotations: arrows,
    xaxis: square("x"), yaxis: { ...square("y"), scaleanchor: "x" } }, OPTIONS);
}

function table(where, rows, head) {
  if (head) for (const text of head) element("th", text, where.tHead?.rows[0] ?? where.createTHead().insertRow());
  const body = where.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) element("td", text, line);
  }
}

byId("title").textContent = document.title = DATA.title;
for (const note of DATA.notes) element("p", note, byId("notes"));
table(byId("facts"), DATA.facts);
byId("manifest").textContent = JSON.stringify(DATA.manifest, null, 2);

function drawTables(tables) {
  byId("tables").replaceChildren();
  for (const one of tables) {
    const made = element("table", undefined, byId("tables"));
    element("caption", one.title, made);
    table(made, one.rows, one.head);
  }
}

// --- a search ---

const told = (number) => `trial ${DATA.trials[number]}<br>` +
  Object.entries(DATA.settings).map(([name, values]) => `${name} = ${values[number]}`).join("<br>");

function drawHistory(chosen) {
  const { values, direction } = DATA.objectives[chosen.objective];
  const better = direction === "maximize" ? Math.max : Math.min;
  let best = null;
  const soFar = values.map((value) => (best = value === null ? best : best === null ? value : better(best, value)));
  Plotly.react("history", [
    { x: DATA.trials, y: values, mode: "markers", name: "trial", text: values.map((_, n) => told(n)), marker: { color: "#777777" } },
    { x: DATA.trials, y: soFar, mode: "lines", name: "best so far", line: { shape: "hv", color: DATA.colours.palette[0] } },
  ], { ...LAYOUT, showlegend: true, xaxis: axisOf("trial"), yaxis: axisOf(chosen.objective) }, OPTIONS);
}

function drawImportance(chosen) {
  const shares = [...(DATA.objectives[chosen.objective].importance ?? [])].reverse();
  Plotly.react("importance", [{ type: "bar", orientation: "h", x: shares.map((one) => one[1]), y: shares.map((one) => one[0]),
    marker: { color: DATA.colours.palette[0] } }], { ...LAYOUT, xaxis: axisOf("importance"), yaxis: axisOf("") }, OPTIONS);
}

function drawPareto(chosen) {
  const [x, y] = [chosen.x, chosen.y].map((name) => DATA.objectives[name].values);
  const colour = DATA.best.map((isBest) => DATA.colours.palette[isBest ? 0 : 1]);
  Plotly.react("pareto", [{ x, y, mode: "markers", text: x.map((_, n) => told(n)),
    marker: { size: 9, color: colour, symbol: DATA.best.map((isBest) => (isBest ? "circle" : "circle-open")) } }],
    { ...LAYOUT, xaxis: axisOf(chosen.x), yaxis: axisOf(chosen.y) }, OPTIONS);
}

function showSearch() {
  const objectives = Object.keys(DATA.objectives);
  drawTables(DATA.tables);
  controls("history", { objective: same(objectives) }, drawHistory);
  const known = objectives.filter((name) => DATA.objectives[name].importance);
  if (known.length) controls("importance", { objective: same(known) }, drawImportance);
  else byId("importance-section").remove();
  if (objectives.length > 1) controls("pareto", { x: same(objectives), y: same([...objectives.slice(1), objectives[0]]) }, drawPareto);
  else byId("pareto-section").remove();
  for (const name of ["curves", "points", "graph", "claims"]) byId(`${name}-section`).remove();
}

// --- runs and sweeps ---

function showResults() {
  for (const name of ["history", "importance", "pareto"]) byId(`${name}-section`).remove();
  if (settings.length) byId("claims-note").textContent = "These results have several points: the number of each seed is its mean over " +
    "all points, or over all points with the same value of the axis that the claim is about.";
  if (DATA.claims.length) table(byId("claims"), DATA.claims, ["claim", "measured, 95 % bootstrap interval", "verdict"]);
  else byId("claims").replaceWith("These results have no data for any claim.");

  controls("tables", pointChoice(DATA.curves.points), (chosen) => drawTables(DATA.tables[placeOf(DATA.curves.points, chosen)]));

  const variables = Object.keys(DATA.curves.variables);
  const allPolicies = Object.keys(DATA.colours.policies);
  const several = settings.length ? { together: [["", "policies"], ...(DATA.isGrid ? same(settings) : [["points", "points"]])],
                                      policy: same(allPolicies) } : {};
  if (variables.length) controls("curves", { variable: same(variables), ...several, ...pointChoice(DATA.curves.points) }, drawCurves);
  else byId("curves-section").remove();

  if (settings.length) {
    const all = [...new Set(Object.values(DATA.maps).flatMap((one) => one.policies))].filter((name) => name);
    const choices = { variable: same(Object.keys(DATA.maps)), policy: same(all), x: same(settings) };
    // Without a second setting, each policy is a line.
    const lines = ["", "(lines of all policies)"];
    if (DATA.isGrid && settings.length > 1) choices.y = [...same([...settings.slice(1), settings[0]]), lines];
    const rest = DATA.isGrid
      ? Object.fromEntries(settings.map((name) => [name, same(valuesAt(name, Object.keys(DATA.settings[name])))])) : {};
    controls("points", { ...choices, ...(settings.length > 1 ? rest : {}) }, (chosen) => {
      const y = choices.y ? chosen.y || chosen.x : chosen.x;
      byId("points-policy").disabled = y === chosen.x;
      for (const name of Object.keys(rest)) {
        const select = byId(`points-${name}`);
        if (select) select.disabled = name === chosen.x || name === y;
      }
      drawMap({ ...chosen, y });
    });
  } else byId("points-section").remove();

  controls("graph", { ...pointChoice(DATA.graphs.points), run: numbered(DATA.runs.slice(0, DATA.graphs.runs)),
                      policy: numbered(DATA.graphs.policies), state: numbered(DATA.graphs.states) }, drawGraph);
}

if (DATA.objectives) showSearch();
else showResults();
