"use strict";
const LEGEND_LINE_HEIGHT = 20; // pixels
const DEFAULT_HEIGHT = 400;
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
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } },
    ...layout,
    font: { color: ink, size: 12 },
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
  };
}

function draw() {
  for (const plot of plots) {
    const { data, layout } = figures[plot.dataset.figure];
    const entries = data.filter((trace) => trace.showlegend !== false).length;
    const legendLines = Math.ceil(entries / (plot.clientWidth > 700 ? 3 : 1));
    const legendHeight = LEGEND_LINE_HEIGHT * legendLines;
    const height = (layout.height || DEFAULT_HEIGHT) + legendHeight;
    const themed = applyTheme({ ...layout, height });
    themed.margin.b += legendHeight;
    Plotly.react(plot, data, themed, { responsive: true, displaylogo: false });
  }
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
  const { x, y, z, text } = trace;
  if (z) {
    const row = (value, i, j) => [name, x ? x[j] : j, y ? y[i] : i, value];
    return z.flatMap((values, i) => values.map((value, j) => row(value, i, j)));
  }
  const length = (x || y || []).length;
  const textOf = (i) => (Array.isArray(text) ? text[i] : text);
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

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
