"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);

  // Charts: the look belongs to the colour scheme, so it is laid under each figure here and changed with the scheme.
  const figures = read("figures");
  const looks = read("looks");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  };
  const layoutOf = (figure, scheme) => Object.assign({}, figure.layout, { template: looks[scheme] });
  const draw = (scheme) =>
    Promise.all(
      figures.map((figure) => {
        const place = document.getElementById(figure.place);
        return Plotly.react(place, figure.data, layoutOf(figure, scheme), config).then(() => place.setAttribute("data-drawn", "true"));
      }),
    );
  const scheme = () => (dark.matches ? "dark" : "light");
  draw(scheme()).then(() => document.body.setAttribute("data-drawn", String(figures.length)));
  dark.addEventListener("change", () => draw(scheme()));

  // Charts whose values span decades have a switch between a linear and a logarithmic scale.
  const isLog = (figure) => Object.keys(figure.log).some((axis) => (figure.layout[axis] || {}).type === "log");
  document.querySelectorAll("button.scale").forEach((button) => {
    const figure = figures.find((one) => one.place === button.dataset.chart);
    const name = () => { button.textContent = isLog(figure) ? "Linear scale" : "Log scale"; };
    button.addEventListener("click", () => {
      const toLog = !isLog(figure);
      Object.keys(figure.log).forEach((axis) => {
        const { type, tickmode, tickvals, ticktext, range, ...rest } = figure.layout[axis] || {};
        figure.layout[axis] = Object.assign(rest, toLog ? figure.log[axis] : { type: "linear" }, { autorange: true });
      });
      name();
      draw(scheme());
    });
    name();
  });

  // Copying: a page that was opened from a disk may lack the clipboard, so a selected text is the way out.
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
  };
  document.querySelectorAll("button[data-copy]").forEach((button) => {
    const name = button.textContent;
    button.addEventListener("click", async () => {
      await copied(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
  });

  // On paper everything is light, and a chart is as wide as the page whatever the window was.
  const drawings = () => document.querySelectorAll("svg.main-svg");
  window.addEventListener("beforeprint", () => {
    if (dark.matches) draw("light");
    document.querySelectorAll(".chart").forEach((chart) => {
      chart.style.minWidth = "0";
      chart.querySelectorAll(".svg-container").forEach((box) => {
        box.dataset.style = box.getAttribute("style");
        box.style.width = "100%";
        box.style.height = "auto";
        box.style.aspectRatio = `${chart.offsetWidth} / ${chart.offsetHeight}`;
      });
    });
    drawings().forEach((svg) => {
      svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
      svg.style.width = "100%";
      svg.style.height = "auto";
    });
  });
  window.addEventListener("afterprint", () => {
    draw(scheme());
    document.querySelectorAll(".svg-container").forEach((box) => box.setAttribute("style", box.dataset.style || ""));
    drawings().forEach((svg) => {
      svg.removeAttribute("viewBox");
      svg.style.width = svg.style.height = "";
    });
  });

  // The table: texts are only ever set as texts, never as markup.
  const table = read("trials");
  const columns = table.columns;
  const body = document.querySelector("#trial-table tbody");
  const head = document.querySelector("#trial-table thead tr");
  const filter = document.getElementById("filter");
  const state = document.getElementById("state");
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  const choice = document.getElementById("columns");
  const scroll = document.querySelector("#all-trials .scroll");
  const PAGE = 50;
  const isNumber = columns.map((_, place) => table.rows.some((row) => typeof row[place] === "number") && table.rows.every((row) => typeof row[place] !== "string" || ["nan", "inf", "-inf"].includes(row[place])));
  const infeasible = new Set(table.infeasible);
  const rows = table.rows.map((cells, place) => ({ cells, place, text: cells.join("\u0000").toLowerCase() }));
  let sorted = { column: -1, sign: 1 };
  let shown = PAGE;
  let isWhole = false; // whether all columns are shown, those included for which there is no room
  let hidden = new Set();

  const numeric = (value) => (typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN);
  const compare = (one, other) => {
    const [a, b] = [one.cells[sorted.column], other.cells[sorted.column]];
    if (isNumber[sorted.column]) {
      const [x, y] = [numeric(a), numeric(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)); // what is no number is last
      return sorted.sign * (x - y);
    }
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sorted.sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  const standing = (row) => row.cells[2] ?? row.cells[1];
  const OPERATORS = {
    "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
  };
  // Names of columns and values may have blanks, for which underscores may stand and the other way round.
  const plain = (text) => text.trim().toLowerCase().replace(/[\s_]+/g, "_");
  const pattern = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/[\s_]+/g, "[\\s_]+");
  const names = [...columns].sort((one, other) => other.length - one.length).map(pattern);
  const CONDITION = new RegExp(`(?<!\\S)(${names.join("|")})\\s*(<=|>=|==|!=|<|>|=)\\s*`, "gi");
  const UNKNOWN = /^([^<>=!]+)(<=|>=|==|!=|<|>|=)/;
  // A condition's value is as many words as are the value of a trial, or else one; what follows is text to look for.
  const valueOf = (column, text) => {
    const words = text.split(/\s+/).filter(Boolean);
    for (let length = words.length; length > 1; length -= 1) {
      const value = plain(words.slice(0, length).join(" "));
      if (rows.some((row) => typeof row.cells[column] === "string" && plain(row.cells[column]) === value)) return [value, words.slice(length)];
    }
    return [plain(words[0] ?? ""), words.slice(1)];
  };
  const condition = (column, operator, value) => {
    if (value === "") return () => true;
    const holds = OPERATORS[operator];
    const limit = Number(value);
    const isOrder = "<>".includes(operator[0]);
    return ({ cells: { [column]: cell } }) => {
      if (cell === null) return false;
      if (!Number.isNaN(limit) && (isOrder || typeof cell === "number")) return typeof cell === "number" && holds(cell, limit);
      return holds(plain(String(cell)), value);
    };
  };
  const parsed = (text) => {
    const found = [...text.matchAll(CONDITION)];
    const conditions = [];
    const words = text.slice(0, found.length ? found[0].index : undefined).split(/\s+/);
    found.forEach((match, place) => {
      const column = columns.findIndex((name) => plain(name) === plain(match[1]));
      const end = place + 1 < found.length ? found[place + 1].index : undefined;
      const [value, rest] = valueOf(column, text.slice(match.index + match[0].length, end));
      conditions.push(condition(column, match[2], value));
      words.push(...rest);
    });
    const texts = words.filter(Boolean).map((word) => word.toLowerCase());
    const asked = texts.filter((word) => !rows.some((row) => row.text.includes(word))).join(" ");
    const unknown = UNKNOWN.exec(asked.replace(/\s+(?=[<>=!])/g, ""));
    return { conditions: [...conditions, ...texts.map((word) => (row) => row.text.includes(word))], unknown: unknown ? unknown[1] : "" };
  };
  const matching = ({ conditions }) => {
    const found = rows.filter((row) => (!state.value || standing(row) === state.value) && conditions.every((holds) => holds(row)));
    return sorted.column < 0 ? found : found.sort((a, b) => compare(a, b) || a.place - b.place);
  };
  const kindOf = (column) => (isNumber[column] ? "number" : columns[column] === "decision" ? "decision" : "");
  const written = (value) => {
    if (typeof value !== "number" || Number.isInteger(value)) return String(value);
    return Math.abs(value) < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
  };
  const cellOf = (row, column) => {
    const cell = document.createElement("td");
    const value = row.cells[column];
    cell.textContent = value === null ? "–" : written(value);
    cell.className = kindOf(column);
    cell.hidden = hidden.has(column);
    if (String(value).length > 12) cell.title = String(value);
    if (column === 1) {
      const mark = document.createElement("span");
      mark.className = "state";
      mark.style.setProperty("--dot", looks.states[standing(row).toLowerCase().replace("_", " ")] || "#93a1b0");
      mark.textContent = String(value);
      cell.replaceChildren(mark);
    }
    return cell;
  };
  const show = () => {
    const wanted = parsed(filter.value);
    const found = matching(wanted);
    const visible = found.slice(0, shown).map((row) => {
      const line = document.createElement("tr");
      if (row.place < table.num_best) line.className = "best";
      else if (infeasible.has(row.place)) line.className = "infeasible";
      line.replaceChildren(...columns.map((_, column) => cellOf(row, column)));
      return line;
    });
    body.replaceChildren(...visible);
    count.textContent = `${visible.length} of ${found.length} trials` + (found.length < rows.length ? ` (${rows.length} in all)` : "")
      + (wanted.unknown ? `; there is no column "${wanted.unknown}"` : "");
    more.hidden = visible.length === found.length;
  };
  // As many columns as there is room for are shown, the most important ones; the others when they are asked for.
  const fit = () => {
    hidden = new Set();
    head.querySelectorAll("th").forEach((cell) => { cell.hidden = false; });
    show();
    if (scroll.clientWidth === 0) return;
    const isTooWide = scroll.scrollWidth > scroll.clientWidth;
    if (isTooWide && !isWhole) {
      let room = scroll.clientWidth;
      const widths = [...head.children].map((cell) => cell.getBoundingClientRect().width);
      let isFull = false;
      table.priority.forEach((column, place) => {
        room -= widths[column];
        isFull = isFull || (room < 0 && place > 1);
        if (isFull) hidden.add(column);
      });
      head.querySelectorAll("th").forEach((cell, column) => { cell.hidden = hidden.has(column); });
      show();
    }
    choice.hidden = !isTooWide;
    choice.textContent = isWhole ? "Fewer columns" : `All ${columns.length} columns`;
  };
  columns.forEach((name, column) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    cell.className = kindOf(column);
    cell.scope = "col";
    button.addEventListener("click", () => {
      sorted = { column, sign: sorted.column === column ? -sorted.sign : 1 };
      head.querySelectorAll("th").forEach((other, place) => {
        if (place === column) other.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
        else other.removeAttribute("aria-sort");
      });
      show();
    });
    cell.append(button);
    head.append(cell);
  });
  [...new Set(rows.map(standing))].forEach((name) => {
    const option = document.createElement("option");
    option.value = option.textContent = name;
    state.append(option);
  });
  filter.addEventListener("input", () => { shown = PAGE; show(); });
  state.addEventListener("change", () => { shown = PAGE; show(); });
  more.addEventListener("click", () => { shown += 10 * PAGE; show(); });
  choice.addEventListener("click", () => { isWhole = !isWhole; fit(); });
  let width = 0;
  new ResizeObserver(() => {
    if (scroll.clientWidth !== width) { width = scroll.clientWidth; fit(); }
  }).observe(scroll);
  fit();
})();
