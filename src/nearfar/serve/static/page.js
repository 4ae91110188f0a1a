"use strict";
const at = (id) => document.getElementById(id);
const STEPS = 1000; // of the slider
const PAGE = 60; // items of a class that are shown at a time
let about = null;
let neighbors = []; // of the last search
let again = null; // the last search, repeated when a setting changes
let farthest = 1;
let latest = 0; // answers to earlier questions are dropped

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function say(text, wrong = false) {
  at("message").hidden = !wrong;
  if (wrong) at("message").textContent = text;
  else at("heading").textContent = text;
}

async function ask(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function picture(name, side) {
  return `/api/picture?name=${encodeURIComponent(name)}&side=${side}`;
}

function card(item) {
  const button = make("button", "card");
  button.type = "button";
  const blank = () => make("span", "blank", "no picture");
  if (about.pictures) {
    const image = make("img");
    image.loading = "lazy";
    image.alt = "";
    image.src = picture(item.name, 240);
    image.addEventListener("error", () => image.replaceWith(blank()), { once: true });
    button.append(image);
  } else button.append(blank());
  const told = make("span", "told");
  told.append(make("span", "", item.class || "—"));
  if (item.distance !== undefined) told.append(make("span", "far", item.distance.toPrecision(3)));
  told.append(make("span", "name", item.name));
  if (item.marked !== null) told.append(make("span", "wrong", item.marked ? `wrong: ${item.marked}` : "marked as wrong"));
  button.append(told);
  button.addEventListener("click", () => show(item));
  const line = make("li");
  line.append(button);
  return line;
}

function limit() {
  const value = Number(at("within").value);
  return value >= STEPS ? Infinity : (value / STEPS) * farthest;
}

function draw() {
  const within = limit();
  const near = neighbors.filter((one) => one.distance <= within);
  at("within-value").textContent = within === Infinity ? "no limit" : within.toPrecision(3);
  at("grid").replaceChildren(...near.map(card));
  at("more").hidden = true;
  at("slider").hidden = neighbors.length === 0;
  say(headingOf(near.length, neighbors.length));
}

function headingOf(matches, found) {
  if (found === 0) return "Nothing found";
  if (matches === 0) return `No match among the ${found} nearest`;
  if (matches === found) return `${found} nearest`;
  return `${matches} ${matches === 1 ? "match" : "matches"} among the ${found} nearest`;
}

function settings() {
  const query = new URLSearchParams({ k: at("k").value || "24" });
  if (at("where").value.trim()) query.set("where", at("where").value.trim());
  if (at("group").value) query.set("group_by", at("group").value);
  return query;
}

async function search(question) {
  again = question;
  const mine = ++latest;
  say("", true);
  at("message").hidden = true;
  at("results").setAttribute("aria-busy", "true");
  try {
    const answer = await question(settings());
    if (mine !== latest) return;
    neighbors = answer.neighbors;
    farthest = Math.max(answer.threshold || 0, ...neighbors.map((one) => one.distance), 1e-9) * 1.001;
    at("within").value = answer.threshold === null ? STEPS : Math.round((answer.threshold / farthest) * STEPS);
    draw();
  } catch (error) {
    if (mine === latest) say(error.message, true);
  } finally {
    at("results").removeAttribute("aria-busy");
  }
}

function byImage(file) {
  if (!file) return;
  forgetImage();
  at("text").value = "";
  at("preview").src = URL.createObjectURL(file);
  at("preview").hidden = false;
  at("drop-text").textContent = "Drop, paste or choose another photo";
  search((query) => ask(`/api/search?${query}`, { method: "POST", body: file, headers: { "Content-Type": file.type || "application/octet-stream" } }));
}

function forgetImage() {
  if (!at("preview").src) return;
  URL.revokeObjectURL(at("preview").src);
  at("preview").removeAttribute("src");
  at("preview").hidden = true;
}

function json(body) {
  return { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

async function browse(label, offset = 0) {
  again = null;
  const mine = ++latest;
  at("message").hidden = true;
  const query = new URLSearchParams({ offset, limit: PAGE });
  if (label) query.set("class", label);
  if (at("where").value.trim()) query.set("where", at("where").value.trim());
  try {
    const answer = await ask(`/api/items?${query}`);
    if (mine !== latest) return;
    neighbors = [];
    at("slider").hidden = true; // items of a class have no distance
    const cards = answer.items.map(card);
    if (offset) at("grid").append(...cards);
    else at("grid").replaceChildren(...cards);
    say(`${answer.total.toLocaleString("en")} items${label ? ` of class ${label}` : ""}`);
    const shown = offset + answer.items.length;
    at("more").hidden = shown >= answer.total;
    at("more").onclick = () => browse(label, shown);
  } catch (error) {
    if (mine === latest) say(error.message, true);
  }
}

function show(item) {
  at("item-name").textContent = item.name;
  at("item-picture").hidden = !about.pictures;
  if (about.pictures) at("item-picture").src = picture(item.name, 800);
  const facts = { class: item.class, ...item.columns };
  if (item.distance !== undefined) facts.distance = item.distance.toPrecision(4);
  at("item-facts").replaceChildren(
    ...Object.entries(facts).flatMap(([key, value]) => [make("dt", "", key), make("dd", "", value === null ? "—" : String(value))]),
  );
  at("right").value = item.marked || "";
  at("marked").textContent = item.marked === null ? "" : "Marked as wrong.";
  at("item-neighbors").onclick = () => {
    at("item").close();
    at("results").focus();
    search((query) => {
      query.set("name", item.name);
      return ask(`/api/neighbors?${query}`);
    });
  };
  at("mark").onsubmit = async (event) => {
    event.preventDefault();
    try {
      item.marked = (await ask("/api/wrong", json({ name: item.name, right: at("right").value.trim() }))).marked;
      at("marked").textContent = "Marked as wrong.";
      if (neighbors.length) draw();
    } catch (error) {
      at("marked").textContent = error.message;
    }
  };
  at("item").showModal();
}

let asked = 0;
async function suggest() {
  const mine = ++asked;
  const answer = await ask(`/api/classes?${new URLSearchParams({ begins: at("class").value })}`).catch(() => null);
  if (answer === null || mine !== asked) return;
  at("classes").replaceChildren(
    ...answer.classes.map((one) => {
      const option = make("option");
      option.value = one.name;
      option.label = `${one.name} (${one.items})`;
      return option;
    }),
  );
}

function listen() {
  at("drop").addEventListener("click", () => at("file").click());
  at("file").addEventListener("change", () => byImage(at("file").files[0]));
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => at("drop").classList.add("over"));
  document.addEventListener("dragleave", () => at("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    at("drop").classList.remove("over");
    if (about.images) byImage(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file && about.images) byImage(file);
  });
  at("ask-text").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text) return say("Type some words to search for.", true);
    forgetImage();
    search((query) => ask(`/api/search-text?${query}`, json({ text })));
  });
  at("settings").addEventListener("submit", (event) => {
    event.preventDefault();
    if (at("class").value || again === null) browse(at("class").value.trim());
    else search(again);
  });
  at("class").addEventListener("input", suggest);
  at("within").addEventListener("input", () => neighbors.length && draw());
}

async function start() {
  about = await ask("/api/about");
  at("title").textContent = about.name;
  document.title = `${about.name} · nearfar`;
  at("about").textContent = `${about.items.toLocaleString("en")} items, ${about.classes.toLocaleString("en")} classes, ${about.distance} distance, ${about.engine}`;
  at("ask-image").hidden = !about.images;
  at("ask-text").hidden = !about.text;
  for (const column of Object.keys(about.columns).filter((one) => one !== "name")) {
    const option = make("option", "", column === "label" ? "class" : column);
    option.value = column;
    at("group").append(option);
  }
  at("where").placeholder = Object.keys(about.columns).includes("price") ? at("where").placeholder : 'label == "a"';
  listen();
  await Promise.all([suggest(), browse("")]);
}

start().catch((error) => say(error.message, true));
