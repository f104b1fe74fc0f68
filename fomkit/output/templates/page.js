"use strict";
(async () => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const load = async (id) => {
    const url = URL.createObjectURL(new Blob([read(id)], { type: "text/javascript" }));
    try { return await import(url); } finally { URL.revokeObjectURL(url); }
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shade = () => document.documentElement.classList.toggle("dark", dark.matches);
  shade();
  dark.addEventListener("change", shade);

  // Tables: without this script they are plain and whole.
  const tables = {};
  const { default: DataTable } = await load("library-tables");
  for (const table of document.querySelectorAll("table.sortable")) {
    const numbers = [...table.querySelectorAll("thead th")].flatMap((th, at) => th.classList.contains("number") ? [at] : []);
    const made = new DataTable(table, {
      pageLength: 25, lengthMenu: [10, 25, 100, { label: "all", value: -1 }], order: [], autoWidth: false,
      columnDefs: [{ targets: numbers, orderSequence: ["desc", "asc"], className: "number" }],
      layout: { topStart: "search", topEnd: "pageLength", bottomStart: "info", bottomEnd: "paging" },
      language: { search: "Find an op", searchPlaceholder: "name, module, size", lengthMenu: "_MENU_ a page",
                  info: "_START_ to _END_ of _TOTAL_", infoFiltered: "(of _MAX_ in all)", infoEmpty: "none",
                  zeroRecords: "No row matches." },
    });
    tables[table.id] = made;
    const filters = document.querySelector(`.filters[data-for="${CSS.escape(table.id)}"]`);
    filters.hidden = false;
    for (const select of filters.querySelectorAll("select")) {
      select.addEventListener("change", () => {
        const wanted = select.value;
        made.column(Number(select.dataset.column)).search(wanted === "" ? "" : (text) => text === wanted).draw();
      });
    }
  }
  document.documentElement.dataset.tables = "ready";

  // Figures: colours of text and lines are the page's, so that they follow light, dark and print.
  const { charts } = read("data");
  await load("library-figures");
  const ink = { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  const config = (width) => ({
    background: "transparent", font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
    axis: { ...ink, gridColor: "currentColor", gridOpacity: 0.12, domainColor: "currentColor", domainOpacity: 0.4,
            tickColor: "currentColor", tickOpacity: 0.4, labelOverlap: "greedy", labelSeparation: 8, labelFlush: false },
    axisY: { labelLimit: Math.max(90, Math.min(300, width * 0.4)) },
    legend: { ...ink, orient: "top", direction: "horizontal", columns: Math.max(2, Math.floor(width / 130)), symbolOpacity: 1,
              layout: { top: { anchor: width < 480 ? "end" : "start" } },
              labelLimit: 150, titleOrient: width < 480 ? "top" : "left" },
    text: { color: "currentColor", fontSize: 12 }, rule: { color: "currentColor" }, title: { color: "currentColor" },
  });
  const draw = async (place) => {
    const width = place.clientWidth;
    const whole = charts[place.id];
    const layer = width < 480 ? whole.layer?.filter((one) => !one.name?.startsWith("ends_")) : whole.layer;
    const spec = { ...whole, ...(layer && { layer }), width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const { view } = await globalThis.vegaEmbed(place, spec, {
      renderer: "svg", actions: false, config: config(width), tooltip: { theme: dark.matches ? "dark" : "light" },
    });
    // The figure's words say what it shows; marks are read from the table, not one by one.
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    const table = tables[place.dataset.finds];
    if (table) view.addEventListener("click", (_event, item) => {
      if (!item?.datum?.sizes) return;
      table.search(item.datum.sizes).draw();
      table.table().container().scrollIntoView({ block: "start" });
    });
    place.dataset.drawn = width;
  };
  const places = [...document.querySelectorAll(".chart")];
  for (const place of places) {
    await draw(place);
    await new Promise((go) => setTimeout(go, 0));
  }
  document.documentElement.dataset.figures = "ready";

  // A figure follows its width by itself; its legend and labels only where it is drawn anew.
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      for (const place of places) {
        if (Math.abs(place.clientWidth - place.dataset.drawn) > 40) await draw(place);
      }
    }, 200);
  });
  addEventListener("beforeprint", () => document.documentElement.classList.remove("dark"));
  addEventListener("afterprint", shade);
})();
