"use strict";
const POLL_MILLISECONDS = 3000;
const DEFAULT_HEIGHT = 400; // pixels
const LABEL_WIDTH = 18; // characters of a category's name on a line of a narrow screen
const STROKES = {
  dash: "9 5", dot: "2 3", dashdot: "9 3 2 3", longdash: "14 5", longdashdot: "14 3 2 3",
};
const MARKERS = {
  circle: "M14 2a4 4 0 1 0 .01 0z", square: "M10 2h8v8h-8z", diamond: "M14 1l5 5-5 5-5-5z",
  cross: "M12 2h4v2h3v4h-3v2h-4v-2h-3v-4h3z", x: "M10 2l8 8m0-8l-8 8", star: "M14 1l2 10-6-6h8l-6 6z",
};
const figures = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll(".plot")];

// The layout in the colors of the page, light or dark.
function applyTheme(layout) {
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
  const axis = (options) => ({
    ...options, gridcolor: line, linecolor: line, zeroline: false, exponentformat: "SI",
  });
  return {
    margin: { l: 60, r: 16, t: 10, b: 55 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "closest",
    hoverlabel: { align: "left" },
    ...layout,
    font: { color: ink, size: 12 },
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
  };
}

const isNarrow = () => innerWidth < 700;

// Names of a category axis on several lines, so that a narrow screen is left to the plot.
function wrappedLabels(data) {
  const names = new Set(data.flatMap((trace) => [...(trace.y || [])]).filter((y) => typeof y === "string"));
  const wrap = (name) => name.split(", ").reduce((lines, part) => {
    const last = lines.length - 1;
    const fits = last >= 0 && lines[last].length + part.length < LABEL_WIDTH;
    return fits ? [...lines.slice(0, last), `${lines[last]}, ${part}`] : [...lines, part];
  }, []).join(",<br>");
  return Object.fromEntries([...names].map((name) => [name, wrap(name)]));
}

function layoutOf(plot) {
  const { data, layout } = figures[plot.dataset.figure];
  const height = layout.height || DEFAULT_HEIGHT;
  const themed = applyTheme({ ...layout, height, showlegend: false });
  if (isNarrow()) {
    Object.assign(themed.margin, { l: 48, r: 6 });
    themed.font.size = 10;
    if (layout.yaxis.type === "category") {
      themed.yaxis.labelalias = wrappedLabels(data);
      themed.height = 1.5 * height;
    }
  }
  return themed;
}

// The sign of a trace in the legend: its line and its marker.
function swatch(trace) {
  const color = (trace.line || {}).color || (trace.marker || {}).color;
  const mode = trace.mode || "markers";
  const { dash = "solid", width = 2 } = trace.line || {};
  const symbol = (trace.marker || {}).symbol || "circle";
  const fill = symbol.endsWith("-open") ? "none" : color;
  const line = `<line x1="0" y1="6" x2="28" y2="6" stroke="${color}" stroke-width="${width}"` +
    ` stroke-dasharray="${STROKES[dash] || ""}"/>`;
  const marker = `<path d="${MARKERS[symbol.replace("-open", "")] || MARKERS.circle}"` +
    ` fill="${fill}" stroke="${color}"/>`;
  const parts = [mode.includes("lines") ? line : "", mode.includes("markers") ? marker : ""];
  return `<svg width="28" height="12" aria-hidden="true">${parts.join("")}</svg>`;
}

// The legend is part of the page, where long names wrap and take the room that they need.
function fillLegend(legend) {
  const plot = plots[legend.dataset.figure];
  const { data } = figures[legend.dataset.figure];
  data.forEach((trace, index) => {
    if (trace.showlegend === false || !trace.name || trace.type !== "scatter") {
      return;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.innerHTML = swatch(trace);
    button.append(unescaped(trace.name));
    button.addEventListener("click", () => {
      const visible = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(visible));
      const same = data.map((other, i) => [other, i]).filter(([other]) =>
        other === trace || (trace.legendgroup && other.legendgroup === trace.legendgroup));
      Plotly.restyle(plot, { visible }, same.map(([, i]) => i));
    });
    legend.append(button);
  });
}

// The text of a name, in which plotly.js needs tags escaped.
function unescaped(name) {
  return new DOMParser().parseFromString(name, "text/html").documentElement.textContent;
}

function draw(plot) {
  const { data } = figures[plot.dataset.figure];
  Plotly.react(plot, data, layoutOf(plot), { responsive: true, displayModeBar: "hover", displaylogo: false });
}

// Draws the plots that can be seen: one in a closed section has no width.
function drawVisible(within) {
  plots.filter((plot) => within.contains(plot) && plot.clientWidth > 0).forEach(draw);
}

// A quoted CSV cell. An apostrophe keeps a spreadsheet from evaluating text as a formula.
function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value).replace(/<br>/g, " ");
  const isFormula = typeof value === "string" && /^[=+\-@\t\r]/.test(text);
  return '"' + (isFormula ? "'" + text : text).replace(/"/g, '""') + '"';
}

// The rows of a trace: its name, x, y, and the value or the text of each point.
function csvRows(trace) {
  const name = trace.name || "";
  const { x, y, z, hovertext } = trace;
  if (z) {
    const row = (value, i, j) => [name, x ? x[j] : j, y ? y[i] : i, value];
    return z.flatMap((values, i) => values.map((value, j) => row(value, i, j)));
  }
  const length = (x || y || []).length;
  const textOf = (i) => (Array.isArray(hovertext) ? hovertext[i] : hovertext);
  return Array.from({ length }, (_, i) => [name, x && x[i], y && y[i], textOf(i)]);
}

function csv(figure) {
  const axisTitle = (name) => (figure.layout[name].title || {}).text || name[0];
  const last = figure.data.some((trace) => trace.z) ? "value" : "record";
  const heading = ["line", axisTitle("xaxis"), axisTitle("yaxis"), last];
  const rows = [heading, ...figure.data.flatMap(csvRows)];
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function download(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

for (const button of document.querySelectorAll("button[data-csv]")) {
  button.addEventListener("click", () => {
    const index = button.dataset.csv;
    const title = plots[index].dataset.title.replace(/[^A-Za-z0-9]+/g, "_").toLowerCase();
    download(csv(figures[index]), `${title}.csv`);
  });
}

const sections = [...document.querySelectorAll("details.section")];

for (const section of sections) {
  section.addEventListener("toggle", () => drawVisible(section));
}
for (const [id, open] of [["open", true], ["close", false]]) {
  const button = document.getElementById(id);
  button && button.addEventListener("click", () => sections.forEach((each) => { each.open = open; }));
}

// A link to a section opens it.
function openLinked() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.matches("details")) {
    target.open = true;
  }
}

document.querySelectorAll(".legend").forEach(fillLegend);
openLinked();
drawVisible(document.body);
addEventListener("hashchange", openLinked);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawVisible(document.body));

// A page that is served loads itself again when there are new records; open sections stay open.
const { version } = document.body.dataset;
if (version) {
  const opened = JSON.parse(sessionStorage.getItem("opened") || "[]");
  sections.forEach((section) => { section.open = section.open || opened.includes(section.id); });
  setInterval(async () => {
    const response = await fetch("/version").catch(() => null);
    if (response && response.ok && (await response.text()) !== version) {
      const open = sections.filter((section) => section.open).map((section) => section.id);
      sessionStorage.setItem("opened", JSON.stringify(open));
      location.reload();
    }
  }, POLL_MILLISECONDS);
}
document.documentElement.dataset.height = document.documentElement.scrollHeight;
