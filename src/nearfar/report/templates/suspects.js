"use strict";
// Decisions on suspects: by mouse or by keys, kept in the browser until they are saved.
const parts = [...document.querySelectorAll(".decide")];
const chosen = part => part.querySelector("input[type=radio]:checked");
const decision = part => {
  const radio = chosen(part);
  return radio && (radio.dataset.other === undefined ? radio.value : part.querySelector(".another").value.trim());
};
const cell = text => '"' + (/^'*[=+\-@\t\r\n＝＋－＠]/.test(text) ? "'" : "") + text.replaceAll('"', '""') + '"';
const place = "nearfar suspects " + document.title + " " + parts.map(part => part.dataset.name).join("\n").length;
const remember = () => {
  const kept = {};
  for (const part of parts) {
    if (decision(part)) kept[part.dataset.name] = [chosen(part).dataset.key, part.querySelector(".another").value];
  }
  try { localStorage.setItem(place, JSON.stringify(kept)); } catch { /* a browser may forbid it */ }
  document.getElementById("count").textContent = parts.filter(decision).length + " of " + parts.length + " decided.";
};
const choose = (part, key) => {
  const radio = part.querySelector(`input[data-key="${key}"]`);
  if (!radio) return;
  radio.checked = true;
  if (key === "4") part.querySelector(".another").focus();
  remember();
};
try {
  const kept = JSON.parse(localStorage.getItem(place) || "{}");
  for (const part of parts) {
    const [key, text] = kept[part.dataset.name] || [];
    const radio = parts.length && [...part.querySelectorAll("input[type=radio]")].find(one => one.dataset.key === key);
    if (!radio) continue;
    radio.checked = true;
    part.querySelector(".another").value = String(text);
  }
} catch { /* nothing was kept */ }
for (const part of parts) {
  const another = part.querySelector(".another");
  another.addEventListener("input", () => {
    part.querySelector('input[data-key="4"]').checked = true;
    remember();
  });
}
document.addEventListener("change", remember);
let current = -1;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.classList.contains("another")) {
    if (event.key === "Escape" || event.key === "Enter") event.target.blur();
    return;
  }
  const step = {j: 1, k: -1}[event.key];
  if (step) {
    current = Math.min(Math.max(current + step, 0), parts.length - 1);
    document.querySelectorAll(".query.current").forEach(line => line.classList.remove("current"));
    const line = parts[current].closest(".query");
    line.classList.add("current");
    line.scrollIntoView({block: "center"});
  } else if ("1234".includes(event.key) && current >= 0) {
    event.preventDefault();
    choose(parts[current], event.key);
  }
});
document.getElementById("save").addEventListener("click", () => {
  const rows = parts.filter(decision).map(part => [part.dataset.name, part.dataset.label, decision(part)].map(cell).join(","));
  const table = new Blob([["name,label,decision", ...rows].join("\r\n") + "\r\n"], {type: "text/csv"});
  const link = document.createElement("a");
  link.href = URL.createObjectURL(table);
  link.download = "decisions.csv";
  link.click();
  URL.revokeObjectURL(link.href);
});
document.getElementById("forget").addEventListener("click", () => {
  for (const part of parts) part.querySelectorAll("input").forEach(input => { input.type === "radio" ? input.checked = false : input.value = ""; });
  remember();
});
remember();
