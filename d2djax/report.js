"use strict";
// What the page shows is in DATA, see report.py; every choice draws its picture anew.

const byId = (id) => document.getElementById(id);
const LAYOUT = { margin: { l: 70, r: 20, t: 20, b: 55 }, hovermode: "closest", font: { size: 13 }, template: "none" };
const OPTIONS = { responsive: true, displaylogo: false };
const settings = Object.keys(DATA.settings);

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// A row of choices: {name: [[value, text], ...]}; `draw` is called with the chosen values, now and at every change.
function controls(id, choices, draw) {
  const selects = {};
  const update = () =>
    draw(Object.fromEntries(Object.entries(selects).map(([name, one]) => [name, one.value])));
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
const nameOf = (point) => settings.map((name) => `${name} = ${DATA.settings[name][point]}`).join(", ") || "all runs";
const pointChoice = (points) => ({ point: points.map((point, place) => [place, nameOf(point)]) });
const clear = (colour) => colour + "33";

function band(x, [mean, low, high], name, colour) {
  const there = x.map((_, place) => place).filter((place) => mean[place] !== null);
  const pick = (values) => there.map((place) => values[place]);
  const limits = pick(low).every((value) => value !== null)
    ? [{ x: pick(x).concat(pick(x).reverse()), y: pick(high).concat(pick(low).reverse()), fill: "toself",
         fillcolor: clear(colour), line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: name,
         mode: "lines" }]
    : [];
  return [...limits, { x: pick(x), y: pick(mean), name, legendgroup: name, mode: "lines+markers",
                       marker: { size: 5 }, line: { color: colour, width: 2 } }];
}

function drawCurves(chosen) {
  const one = DATA.curves.variables[chosen.variable];
  const traces = one.methods.flatMap((method, place) =>
    band(one.x, one.values[chosen.point][place], method, DATA.colours.methods[method]));
  Plotly.react("curves", traces,
    { ...LAYOUT, xaxis: { title: { text: one.along } }, yaxis: { title: { text: wrapped(one.label) } } }, OPTIONS);
}

// Long names of variables would be cut off at the side.
function wrapped(text) {
  return text.replace(/(.{25,45}?) /g, "$1<br>");
}

function drawMap(chosen) {
  const one = DATA.maps[chosen.variable];
  const place = Math.max(0, one.methods.indexOf(chosen.method));
  const values = one.values.map((byMethod) => byMethod[place]);
  // A list of points is no grid: all of them are shown, whatever their other settings.
  const fixed = DATA.isGrid ? settings.filter((name) => name !== chosen.x && name !== chosen.y) : [];
  const rows = values.map((_, point) => point)
    .filter((point) => fixed.every((name) => String(DATA.settings[name][point]) === chosen[name]));
  const unique = (name) => [...new Set(rows.map((point) => DATA.settings[name][point]))];
  const axis = (name) => ({ title: { text: name }, type: "category" });
  if (chosen.y !== chosen.x) {
    const [x, y] = [unique(chosen.x), unique(chosen.y)];
    const z = y.map(() => x.map(() => null));
    for (const point of rows) {
      z[y.indexOf(DATA.settings[chosen.y][point])][x.indexOf(DATA.settings[chosen.x][point])] = values[point][0];
    }
    const heat = { type: "heatmap", x: x.map(String), y: y.map(String), z, colorscale: "Cividis",
                   texttemplate: "%{z:.4g}", hovertemplate: `${chosen.x} %{x}<br>${chosen.y} %{y}<br>%{z}<extra></extra>` };
    Plotly.react("points", [heat], { ...LAYOUT, margin: { ...LAYOUT.margin, t: 50 }, title: { text: one.label, font: { size: 13 } },
                                     xaxis: axis(chosen.x), yaxis: axis(chosen.y) }, OPTIONS);
    return;
  }
  const x = rows.map((point) => DATA.settings[chosen.x][point]);
  const pick = (number) => rows.map((point) => values[point][number] ?? null);
  const colour = DATA.colours.methods[chosen.method] ?? "#0072B2";
  const traces = DATA.isGrid
    ? band(x, [pick(0), pick(1), pick(2)], chosen.method || chosen.variable, colour)
    : [{ x, y: pick(0), mode: "markers", marker: { color: colour, size: 6 }, text: rows.map(nameOf) }];
  Plotly.react("points", traces, { ...LAYOUT, xaxis: { title: { text: chosen.x } },
                                   yaxis: { title: { text: wrapped(one.label) } } }, OPTIONS);
}

function drawGraph(chosen) {
  const graphs = DATA.graphs;
  const at = (name) => graphs[name][chosen.point][chosen.run];
  const [place, cluster] = [at("position"), at("cluster")];
  const links = at("links")[chosen.method][chosen.state];
  const [before, after] = [at("counts_before"), at("counts")[chosen.method]];
  const told = (counts) => counts.map((n, l) => [graphs.classes[l], n]).filter(([, n]) => n > 0)
    .map(([name, n]) => `${name} ${n}`).join(", ");
  const text = place.map((_, i) => `device ${i}, cluster ${cluster[i]}<br>` +
    (links[i] === i ? "no transmitter" : `takes from ${links[i]}`) +
    `<br>before: ${told(before[i])}<br>after: ${told(after[i])}`);
  const devices = { x: place.map((p) => p[0]), y: place.map((p) => p[1]), text, mode: "markers", hoverinfo: "text",
    hoverlabel: { align: "left" }, marker: { size: 13, line: { color: "white", width: 1 },
      color: cluster.map((k) => DATA.colours.clusters[k % DATA.colours.clusters.length]) } };
  const arrows = links.map((j, i) => [j, i]).filter(([j, i]) => j !== i && j >= 0).map(([j, i]) => ({
    x: place[i][0], y: place[i][1], ax: place[j][0], ay: place[j][1], xref: "x", yref: "y", axref: "x", ayref: "y",
    text: "", arrowhead: 2, arrowsize: 1.1, arrowwidth: 1.3, standoff: 7, startstandoff: 7,
    opacity: 0.8, arrowcolor: cluster[i] === cluster[j] ? "#555555" : DATA.colours.inter }));
  const square = (name) => ({ title: { text: `${name} (m)` }, zeroline: false });
  // Plotly's arrows cannot be dashed: between clusters a dashed line lies under the head.
  const inter = arrows.filter((arrow) => arrow.arrowcolor === DATA.colours.inter);
  const dashed = { x: inter.flatMap((a) => [a.ax, a.x, null]), y: inter.flatMap((a) => [a.ay, a.y, null]), mode: "lines",
    line: { dash: "dash", width: 1.5, color: DATA.colours.inter }, hoverinfo: "skip" };
  for (const arrow of inter) {
    const [dx, dy] = [arrow.x - arrow.ax, arrow.y - arrow.ay];
    [arrow.ax, arrow.ay, arrow.startstandoff] = [arrow.x - dx * 0.12, arrow.y - dy * 0.12, 0];
  }
  Plotly.react("graph", [dashed, devices], { ...LAYOUT, showlegend: false, annotations: arrows,
    xaxis: square("x"), yaxis: { ...square("y"), scaleanchor: "x" } }, OPTIONS);
}

function table(id, rows, head) {
  if (head) for (const text of head) element("th", text, byId(id).tHead?.rows[0] ?? byId(id).createTHead().insertRow());
  const body = byId(id).createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) element("td", text, line);
  }
}

byId("title").textContent = document.title = DATA.title;
for (const note of DATA.notes) element("p", note, byId("notes"));
table("facts", DATA.facts);
byId("manifest").textContent = JSON.stringify(DATA.manifest, null, 2);
if (DATA.claims.length) table("claims", DATA.claims, ["claim", "measured, 95 % bootstrap interval", "verdict"]);
else byId("claims").replaceWith("These results have no data for any of them.");

const variables = Object.keys(DATA.curves.variables);
if (variables.length) controls("curves", { variable: same(variables), ...pointChoice(DATA.curves.points) }, drawCurves);
else byId("curves-section").remove();

if (settings.length) {
  const all = [...new Set(Object.values(DATA.maps).flatMap((one) => one.methods))].filter((name) => name);
  const choices = { variable: same(Object.keys(DATA.maps)), method: same(all), x: same(settings) };
  if (DATA.isGrid && settings.length > 1) choices.y = same([...settings.slice(1), settings[0]]);
  const rest = DATA.isGrid
    ? Object.fromEntries(settings.map((name) => [name, same([...new Set(DATA.settings[name])].map(String))])) : {};
  controls("points", { ...choices, ...(settings.length > 1 ? rest : {}) }, (chosen) => {
    const y = choices.y ? chosen.y : chosen.x;
    for (const name of Object.keys(rest)) {
      const select = byId(`points-${name}`);
      if (select) select.disabled = name === chosen.x || name === y;
    }
    drawMap({ ...chosen, y });
  });
} else byId("points-section").remove();

controls("graph", { ...pointChoice(DATA.graphs.points), run: numbered(DATA.runs.slice(0, DATA.graphs.runs)),
                    method: numbered(DATA.graphs.methods), state: numbered(DATA.graphs.states) }, drawGraph);
