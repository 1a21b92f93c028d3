"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll(".plot")];

function theme(layout) {
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
  const axis = (given) => ({ ...given, gridcolor: line, linecolor: line, zeroline: false, exponentformat: "SI" });
  return {
    margin: { l: 60, r: 16, t: 10, b: 55 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "closest", hoverlabel: { align: "left" }, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } },
    ...layout, font: { color: ink, size: 12 }, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
  };
}

function draw() {
  for (const plot of plots) {
    const { data, layout } = figures[plot.dataset.figure];
    const many = Math.ceil(data.filter((trace) => trace.showlegend !== false).length / (plot.clientWidth > 700 ? 3 : 1));
    const room = 20 * many;
    const sized = theme({ ...layout, height: (layout.height || 400) + room });
    sized.margin.b += room;
    Plotly.react(plot, data, sized, { responsive: true, displaylogo: false });
  }
}

// A cell that a spreadsheet would take for a formula is made text.
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value).replace(/<br>/g, " ");
  const guarded = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return '"' + guarded.replace(/"/g, '""') + '"';
}

function rows(trace) {
  const name = trace.name || "";
  if (trace.z) return trace.z.flatMap((row, i) => row.map((z, j) => [name, trace.x ? trace.x[j] : j, trace.y ? trace.y[i] : i, z]));
  const length = (trace.x || trace.y || []).length;
  return Array.from({ length }, (_, i) => [name, trace.x && trace.x[i], trace.y && trace.y[i], Array.isArray(trace.text) ? trace.text[i] : trace.text]);
}

function csv(figure) {
  const axes = ["xaxis", "yaxis"].map((name) => (figure.layout[name].title || {}).text || name[0]);
  const heading = ["line", ...axes, figure.data.some((trace) => trace.z) ? "value" : "record"];
  return [heading, ...figure.data.flatMap(rows)].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

for (const button of document.querySelectorAll("button[data-csv]")) {
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(figures[button.dataset.csv])], { type: "text/csv" }));
    link.download = plots[button.dataset.csv].dataset.title.replace(/[^A-Za-z0-9]+/g, "_").toLowerCase() + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
