// What the report gains where JavaScript runs: charts, sorting, copies, tables as CSV, and a switch of light and dark.
"use strict";
(() => {
  const root = document.documentElement;

  // Colours in charts may be variables of the style sheet; a hidden element finds what they stand for now.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (variable) => {
    probe.style.color = variable;
    return getComputedStyle(probe).color;
  };
  const resolved = (value, key = "") => {
    if (typeof value === "string") return /color/.test(key) && value.startsWith("var(") ? colour(value) : value;
    if (Array.isArray(value)) return value.map((item) => resolved(item, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolved(item, name)]));
  };

  // Charts: drawn when they come near the window, and again when colours or paper change.
  const charts = [...document.querySelectorAll(".chart")];
  const template = JSON.parse(document.getElementById("chart-template").textContent);
  template.layout.font.family = getComputedStyle(document.body).fontFamily;
  // Buttons are named one by one: among Plotly's own is one that sends the chart's data to a server.
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]], plotlyServerURL: "" };
  const drawn = new Set();
  // Plotly cuts off what does not fit: words beyond so many characters go on the next line.
  const folded = (text, most) => {
    const lines = [""];
    for (const word of text.split(" ")) {
      const longer = `${lines.at(-1)} ${word}`.trim();
      if (longer.length > most && lines.at(-1)) lines.push(word);
      else lines[lines.length - 1] = longer;
    }
    return lines.join("<br>");
  };
  const draw = (chart, width) => {
    const figure = chart.parentElement;
    const { data, layout } = resolved(JSON.parse(figure.querySelector(".plot").textContent));
    if (!width && chart.clientWidth < 600) {
      Object.assign(layout, layout.meta?.narrow); // how a figure wants to be laid out where there is little room
      for (const trace of data) trace.mode = trace.mode?.replace("+text", "");
      for (const [name, axis] of Object.entries(layout)) {
        if (name.startsWith("xaxis") && axis.title?.text) axis.title.text = folded(axis.title.text, chart.clientWidth / 12);
      }
    }
    chart.style.height = `${layout.height}px`;
    Object.assign(layout, { template: resolved(template), width, autosize: width === undefined });
    if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
    drawn.add(chart);
    Plotly.react(chart, data, layout, config).then(
      () => chart.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true")),
      (error) => {
        figure.querySelector("details").open = true;
        throw error;
      },
    );
  };
  const redraw = () => drawn.forEach((chart) => draw(chart));

  // The tables behind charts are open in the file, for readers without scripts.
  for (const details of document.querySelectorAll("figure > details")) details.open = false;

  addEventListener("DOMContentLoaded", () => {
    const near = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          near.unobserve(target);
          if (!drawn.has(target)) draw(target);
        }
      },
      { rootMargin: "800px" },
    );
    charts.forEach((chart) => near.observe(chart));
  });

  // The navigation marks the section being read, and keeps its link in sight.
  const list = document.querySelector("nav ul");
  const here = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        const link = list.querySelector(`a[href="#${target.id}"]`); // none for the masthead and the verdict
        link?.removeAttribute("aria-current");
        if (!isIntersecting) continue;
        link?.setAttribute("aria-current", "true");
        list.scrollTo({ left: link ? link.offsetLeft - list.offsetLeft - list.clientWidth / 3 : 0 });
      }
    },
    { rootMargin: "-20% 0px -79% 0px" },
  );
  document.querySelectorAll("header, main > section").forEach((part) => here.observe(part));

  // Light and dark: the system's choice until the button is pressed; remembered nowhere.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.style.colorScheme || (system.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show in ${isDark() ? "light" : "dark"} colours`);
  };
  button.hidden = false;
  label();
  button.addEventListener("click", () => {
    root.style.colorScheme = isDark() ? "light" : "dark";
    label();
    redraw();
  });
  system.addEventListener("change", () => {
    label();
    redraw();
  });

  // Paper is light, and as wide as A4 less its margins.
  let screenScheme = "";
  addEventListener("beforeprint", () => {
    screenScheme = root.style.colorScheme;
    root.style.colorScheme = "light";
    charts.forEach((chart) => draw(chart, 672));
  });
  addEventListener("afterprint", () => {
    root.style.colorScheme = screenScheme;
    redraw();
  });

  // Tables: a header becomes a button that sorts by its column. Numbers come before words, empty cells last.
  const rank = (cell) => ("value" in cell.dataset ? 0 : cell.textContent ? 1 : 2);
  const compare = (one, other) =>
    rank(one) === 0
      ? one.dataset.value - other.dataset.value
      : one.textContent.localeCompare(other.textContent, undefined, { numeric: true });
  const sort = (table, header) => {
    const index = header.cellIndex;
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [one.cells[index], other.cells[index]];
      return rank(a) - rank(b) || sign * compare(a, b);
    });
    body.append(...rows);
  };

  // Cells with an example: the whole table is one stop of the Tab key, arrows move between cells, and the example
  // shows beside its cell. Without scripts every cell is a stop, and examples show in a corner.
  for (const table of document.querySelectorAll("table.peeks")) {
    const stops = () => [...table.querySelectorAll("td[tabindex]")];
    stops().forEach((cell, index) => (cell.tabIndex = index ? -1 : 0));
    table.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td[tabindex]");
      const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
      if (!cell || down === undefined) return;
      const rows = [...table.tBodies[0].rows];
      const next = rows[rows.indexOf(cell.parentElement) + down]?.cells[cell.cellIndex + across];
      event.preventDefault();
      if (!next?.hasAttribute("tabindex")) return;
      stops().forEach((other) => (other.tabIndex = other === next ? 0 : -1));
      next.focus();
    });
    const beside = (event) => {
      const peek = (event.target.closest?.("td[tabindex]") ?? table.querySelector("td:focus"))?.querySelector(".peek");
      if (!peek) return;
      const cell = peek.parentElement.getBoundingClientRect();
      peek.style.visibility = cell.bottom > 48 && cell.top < innerHeight ? "visible" : "hidden";
      const [width, height] = [peek.offsetWidth, peek.offsetHeight];
      const left = Math.min(Math.max(cell.left + cell.width / 2 - width / 2, 8), innerWidth - width - 8);
      const above = cell.top - height - 8;
      peek.style.inset = `${above > 56 ? above : cell.bottom + 8}px auto auto ${left}px`;
    };
    table.addEventListener("mouseover", beside);
    table.addEventListener("focusin", beside);
    addEventListener("scroll", beside, { passive: true });
  }
  const small = (name, text, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", className: `small ${name}`, textContent: text });
    made.addEventListener("click", () => act(made));
    return made;
  };

  // Commands: a button copies them; where the browser forbids that, it selects them.
  const copy = async (made, code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      made.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      made.textContent = "Selected";
    }
    setTimeout(() => (made.textContent = "Copy"), 2000);
  };
  for (const code of document.querySelectorAll(".code code")) {
    const made = small("copy", "Copy", (button) => copy(button, code));
    made.setAttribute("aria-label", `Copy: ${code.parentElement.getAttribute("aria-label")}`);
    code.closest(".code").append(made);
  }

  // Tables as CSV: numbers as they were measured, not as they are rounded. A text that a spreadsheet would take for a
  // formula gets an apostrophe before it.
  const written = (cell) => {
    if ("value" in cell.dataset) return cell.dataset.value;
    const shown = cell.cloneNode(true);
    shown.querySelectorAll(".peek").forEach((peek) => peek.remove());
    const text = shown.textContent.trim();
    return `"${(/^[=+@\-\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  };
  const download = (table) => {
    const lines = [...table.rows].map((row) => [...row.cells].map(written).join(","));
    const title = table.getAttribute("aria-label");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "table"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  for (const table of document.querySelectorAll("table")) {
    const made = small("csv", "Download CSV", () => download(table));
    made.setAttribute("aria-label", `Download CSV: ${table.getAttribute("aria-label")}`);
    table.closest(".scroll").after(made);
    for (const header of table.tHead.rows[0].cells) {
      const sorter = document.createElement("button");
      sorter.type = "button";
      sorter.append(...header.childNodes);
      header.append(sorter);
      sorter.addEventListener("click", () => sort(table, header));
    }
  }
})();
