"use strict";
// Sorts, filters, copies and saves the tables of a page. Without this script, they are plain tables.
const build = (tag, text, values) => Object.assign(document.createElement(tag), {textContent: text || ""}, values);
const plain = cell => [...cell.childNodes].filter(node => node.nodeName !== "SMALL").map(node => node.textContent)
  .join("").replace(/\s+/g, " ").trim();
// a cell that begins like a formula would be computed by a spreadsheet
const csvCell = text => '"' + (/^'*[=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[+-]?[\d.]+%?$/.test(text) ? "'" : "")
  + text.replaceAll('"', '""') + '"';
const save = (text, name) => {
  const link = build("a", "", {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const copy = async (text, button) => {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = build("textarea", "", {value: text});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1200);
};
const buttonOf = (text, action) => {
  const button = build("button", text, {type: "button"});
  button.addEventListener("click", () => action(button));
  return button;
};
const rowsOf = table => [...table.querySelectorAll("tbody tr")];
const cellsOf = (table, rows) => {
  const kept = [...table.tHead.rows[0].cells].map(cell => !cell.classList.contains("scale"));
  return [table.tHead.rows[0], ...rows].map(row => [...row.cells].filter((_, k) => kept[k]).map(plain));
};

for (const table of document.querySelectorAll("table[data-name]")) {
  const heads = [...table.tHead.rows[0].cells];
  const tools = build("div", "", {className: "tools"});
  const shown = () => rowsOf(table).filter(row => !row.hidden);
  if (table.dataset.filter) {
    const label = build("label", "Filter ");
    const field = build("input", "", {type: "search", placeholder: table.dataset.filter});
    const count = build("span", "", {className: "count"});
    count.setAttribute("role", "status");
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of rowsOf(table)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      count.textContent = wanted ? shown().length + " of " + rowsOf(table).length : "";
    });
    label.append(field);
    tools.append(label, count);
  }
  tools.append(
    buttonOf("Copy", button => copy(cellsOf(table, shown()).map(row => row.join("\t")).join("\n"), button)),
    buttonOf("CSV", () => {
      save(cellsOf(table, shown()).map(row => row.map(csvCell).join(",")).join("\r\n") + "\r\n", table.dataset.name + ".csv");
    }),
  );
  (table.closest(".scroll") || table).before(tools);
  heads.forEach((head, k) => {
    if (head.classList.contains("scale") || rowsOf(table).length < 2) return;
    const value = row => {
      const cell = row.cells[k];
      const text = cell.dataset.value ?? plain(cell);
      const number = parseFloat(text.replaceAll(",", ""));
      return Number.isNaN(number) ? text.toLowerCase() : number;
    };
    const sort = buttonOf(plain(head), () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = rowsOf(table).map(row => [value(row), row]);
      const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
      keyed.sort((a, b) => (up ? order(a[0], b[0]) : order(b[0], a[0])));
      table.tBodies[0].append(...keyed.map(pair => pair[1]));
    });
    sort.className = "sort";
    head.replaceChildren(sort);
  });
}

for (const block of document.querySelectorAll("pre")) {
  const tools = build("div", "", {className: "tools"});
  tools.append(buttonOf("Copy", button => copy(block.textContent, button)));
  block.before(tools);
}
