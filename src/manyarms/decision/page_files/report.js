"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = read("charts"), themes = read("themes");
  const root = document.documentElement, button = document.getElementById("theme");

  async function draw() {
    const config = themes[root.dataset.theme];
    let drawn = 0;
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById("chart-" + name);
      // As wide as the page has room for; on a phone, labels get less of it.
      const narrow = place.clientWidth < 480;
      const sized = { ...spec, width: "container", autosize: { type: "fit-x", contains: "padding" } };
      const fitted = narrow
        ? {
            ...config, axis: { ...config.axis, labelLimit: 90 }, legend: { ...config.legend, columns: 1 },
            text: { ...config.text, fontSize: 9 },
          }
        : config;
      // The page forbids eval and styles that are not its own: expressions are interpreted, and report.css has the rest.
      const strict = { ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true } };
      await vegaEmbed(place, sized, { config: fitted, actions: false, renderer: "svg", ...strict });
      drawn += 1;
    }
    root.dataset.drawn = String(drawn);
  }

  function use(theme) {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    return draw();
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  button.addEventListener("click", () => use(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", (event) => use(event.matches ? "dark" : "light"));

  // Paper is white: charts with the colours of a dark page could not be read on it.
  let before = null;
  window.addEventListener("beforeprint", () => {
    if (root.dataset.theme === "dark") before = use("light").then(() => "dark");
  });
  window.addEventListener("afterprint", () => {
    if (before !== null) before.then(use);
    before = null;
  });

  // A cell may say by which number it is sorted; else by its text.
  const key = (row, column) => {
    const cell = row.cells[column], value = cell.dataset.value;
    return value === undefined ? cell.textContent : value === "" ? -Infinity : Number(value);
  };
  for (const table of document.querySelectorAll("table.sorts")) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0], rows = [...body.rows];
        rows.sort((a, b) => {
          const x = key(a, column), y = key(b, column);
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }
  use(dark.matches ? "dark" : "light").catch((problem) => {
    root.dataset.failed = String(problem);
    console.error(problem);
  });
})();
