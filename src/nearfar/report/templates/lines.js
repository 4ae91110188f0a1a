// Hits: a filter over the names and classes of the lines.
const lines = [...document.querySelectorAll(".queries > .query")];
if (lines.length > 1) {
  const tools = build("div", "", {className: "tools"});
  const label = build("label", "Filter ");
  const field = build("input", "", {type: "search", placeholder: "name or class"});
  const count = build("span", "", {className: "count"});
  count.setAttribute("role", "status");
  const words = line => [...line.querySelectorAll("[title]")].map(part => part.title).join(" ") + " " + line.textContent;
  const texts = lines.map(line => words(line).toLowerCase());
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    lines.forEach((line, k) => { line.hidden = !texts[k].includes(wanted); });
    count.textContent = wanted ? lines.filter(line => !line.hidden).length + " of " + lines.length : "";
  });
  label.append(field);
  tools.append(label, count, buttonOf("CSV", () => {
    const rows = [["query", "query class", "rank", "found", "found class", "note"]];
    for (const line of lines.filter(one => !one.hidden)) {
      [...line.querySelectorAll(".found > li[data-name]")].forEach((found, k) => {
        rows.push([line.dataset.name, line.dataset.class, String(k + 1), found.dataset.name, found.dataset.class,
          plain(found.querySelector(".remark:not(.file)") || found)]);
      });
    }
    save(rows.map(row => row.map(csvCell).join(",")).join("\r\n") + "\r\n", "hits.csv");
  }));
  lines[0].parentElement.before(tools);
}
