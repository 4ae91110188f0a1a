// Decisions on near duplicates: which items are removed, saved as a table.
const boxes = [...document.querySelectorAll("[data-removal]")];
const counted = () => {
  const removed = boxes.filter(box => box.checked).length;
  document.getElementById("count").textContent = removed + " of " + boxes.length + " items are removed.";
};
document.addEventListener("change", counted);
document.getElementById("save").addEventListener("click", () => {
  const rows = boxes.map(box => [box.dataset.name, box.dataset.label, box.checked ? "remove" : "keep"]);
  const table = [["name", "label", "decision"], ...rows];
  save(table.map(row => row.map(csvCell).join(",")).join("\r\n") + "\r\n", "decisions.csv");
});
counted();
