// A button on each block of code copies it, without prompts.
document.addEventListener("DOMContentLoaded", () => {
  // wide tables scroll by keys, and the menus and tools of the theme have names
  for (const table of document.querySelectorAll(".table-wrapper")) table.tabIndex = 0;
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
  const tools = document.querySelector(".content-icon-container");
  tools?.setAttribute("role", "region");
  tools?.setAttribute("aria-label", "Source and colors of this page");
  for (const link of document.querySelectorAll(".sphx-glr-thumbcontainer a")) link.setAttribute("aria-label", link.textContent);
  if (!document.querySelector("h1")) {  // the page of search results has none
    const title = document.createElement("h1");
    title.textContent = document.title.split(" - ")[0];
    document.querySelector("article").prepend(title);
  }
  for (const block of document.querySelectorAll("div.highlight")) {
    const code = block.querySelector("pre");
    if (!code || block.closest(".output")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const lines = code.textContent.replace(/\n$/, "").split("\n");
      const prompted = lines.filter(line => /^(>>>|\.\.\.|\$)( |$)/.test(line));
      const text = (prompted.length ? prompted.map(line => line.replace(/^\S+ ?/, "")) : lines).join("\n");
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1200);
    });
    block.append(button);
    code.tabIndex = 0;  // a block that scrolls can be scrolled by keys
  }
  // on phones, what continues a command is indented, and an option is not broken after its hyphens
  const option = /(?<=^|[\s>])--?[a-z][a-z-]*/g;
  for (const code of document.querySelectorAll("div.highlight-bash pre")) {
    const lines = code.innerHTML.replace(/\n$/, "").split("\n");  // no element of Pygments goes over the end of a line
    code.innerHTML = lines.map(line => `<span class="line">${line.replace(option, '<span class="option">$&</span>')}\n</span>`).join("");
  }
  for (const word of document.querySelectorAll("code span.pre")) {
    if (/^--?[a-z][a-z-]{0,24}$/.test(word.textContent)) word.classList.add("option");
  }
  // on phones, the cells of a table of many columns stand one below the other, each with the name of its column
  for (const table of document.querySelectorAll("article table.docutils:not(:has(td.text-right)):has(td:nth-child(4))")) {
    const names = [...table.querySelectorAll("thead th")].map(head => head.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, column) => { if (column && cell.textContent) cell.dataset.column = names[column]; });
    }
  }
});
// So do formulas and pictures that are wider than a phone, once pictures have their size.
window.addEventListener("load", () => {
  for (const wide of document.querySelectorAll(".formula, article p:has(> img)")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
  }
});
