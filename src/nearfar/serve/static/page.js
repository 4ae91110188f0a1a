"use strict";
const at = (id) => document.getElementById(id);
const STEPS = 1000; // of the slider
const PAGE = 60; // items of a class that are shown at a time
const SHOWN_COLUMNS = 3; // on a card; the dialog shows all
const SVG = at("drop-icon").namespaceURI;
let about = null;
let neighbors = []; // of the last search
let again = null; // the last search, repeated when a setting changes
let farthest = 1;
let threshold = null; // of the index, for the last search
let opened = null; // the item that the dialog shows
let asked = ""; // where the picture of the query of the last search is
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

function clear() {
  neighbors = [];
  at("grid").replaceChildren();
  at("slider").hidden = true;
  at("more").hidden = true;
  suggestInstead("");
}

// What to do where there is nothing to see; "" hides it.
function suggestInstead(text) {
  at("empty").hidden = !text;
  at("empty").textContent = text;
}

async function ask(path, options) {
  const response = await fetch(path, options).catch(() => {
    throw new Error("The server does not answer. Is it still running?");
  });
  const answer = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// A distance with three significant digits; 0 if it may be due to rounding.
function short(distance) {
  if (distance === Infinity) return "no limit";
  if (distance < 1e-9) return "0";
  if (distance < 0.001) return distance.toExponential(1);
  return distance < 100 ? distance.toPrecision(3) : distance.toFixed(0);
}

// Items of a class have no distance, nor has what was found by words alone.
function hasDistance(item) {
  return item.distance !== undefined && item.distance !== null;
}

function fileName(name) {
  return name.split("/").pop();
}

// The first columns of an item that say more than its class.
function values(item) {
  const told = Object.entries(item.columns).filter(([, value]) => value !== null && String(value) !== item.class);
  return told.slice(0, SHOWN_COLUMNS).map(([column, value]) => `${column} ${value}`);
}

function picture(name, side) {
  return `/api/picture?name=${encodeURIComponent(name)}&side=${side}`;
}

function blank() {
  return make("span", "blank", "no picture");
}

// A picture that is replaced by words if it cannot be shown.
function framed(source) {
  const frame = make("span", "frame");
  const image = make("img");
  image.loading = "lazy";
  image.alt = "";
  image.src = source;
  image.addEventListener("error", () => image.replaceWith(blank()), { once: true });
  frame.append(image);
  return frame;
}

// The border of places that lie in one grid: a side of two of them is none of it.
function borderOf(boxes) {
  const sides = new Set();
  for (const [left, top, right, bottom] of boxes) {
    for (const side of [`M${left} ${top}H${right}`, `M${left} ${bottom}H${right}`, `M${left} ${top}V${bottom}`, `M${right} ${top}V${bottom}`]) {
      if (!sides.delete(side)) sides.add(side);
    }
  }
  return [...sides].join("");
}

function percent(share) {
  return `${Math.round(share * 100)}%`;
}

// Where places are, in words.
function whereAre(boxes) {
  if (!boxes.length) return "";
  const [left, top] = [0, 1].map((side) => Math.min(...boxes.map((box) => box[side])));
  const [right, bottom] = [2, 3].map((side) => Math.max(...boxes.map((box) => box[side])));
  return `: matches from ${percent(left)} to ${percent(right)} of the width and ${percent(top)} to ${percent(bottom)} of the height`;
}

function countOf(places) {
  return `${places.matching} of ${places.of} places match`;
}

// A picture with the outlines of places, which also are in its text alternative.
function outlined(source, boxes, alternative) {
  const frame = framed(source);
  const image = frame.firstChild;
  image.alt = `${alternative}${whereAre(boxes)}`;
  const draw = () => {
    const svg = document.createElementNS(SVG, "svg");
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    const scaled = boxes.map(([left, top, right, bottom]) => [left * width, top * height, right * width, bottom * height].map((side) => side.toFixed(1)));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("class", "outline");
    svg.setAttribute("aria-hidden", "true");
    for (const kind of ["edge", "line"]) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", kind);
      path.setAttribute("d", borderOf(scaled));
      svg.append(path);
    }
    frame.append(svg);
  };
  image.addEventListener("load", draw, { once: true });
  return frame;
}

// The pictures of an item: that of its own, after that of the query if they were compared.
function picturesOf(item, side) {
  const own = picture(item.name, side);
  if (!item.places) return [framed(own)];
  const found = outlined(own, item.places.item, "Item");
  return asked ? [outlined(asked, item.places.query, "Query"), found] : [found];
}

function card(item) {
  const button = make("button", "card");
  button.type = "button";
  button.title = item.name;
  if (about.pictures) {
    const pair = make("span", "pair");
    pair.append(...picturesOf(item, 240));
    button.append(pair);
  } else button.append(blank());
  const told = make("span", "told");
  told.append(make("span", "", item.class || "—"));
  if (hasDistance(item)) told.append(make("span", "far", `distance ${short(item.distance)}`));
  if (item.places) told.append(make("span", "far", countOf(item.places)));
  told.append(...values(item).map((value) => make("span", "value", value)));
  told.append(make("span", "name", fileName(item.name)));
  if (item.marked !== null) told.append(make("span", "wrong", item.marked ? `wrong: ${item.marked}` : "marked as wrong"));
  button.append(told);
  button.addEventListener("click", () => show(item));
  const line = make("li");
  line.append(button);
  item.line = line;
  return line;
}

function limit() {
  const value = Number(at("within").value);
  return value >= STEPS ? Infinity : (value / STEPS) * farthest;
}

function draw() {
  const within = limit();
  const near = neighbors.filter((one) => one.distance <= within);
  const stored = threshold !== null && Math.abs(within - threshold) <= farthest / STEPS;
  at("within-value").textContent = stored ? `${short(threshold)}, the threshold of the index` : short(within);
  at("grid").replaceChildren(...near.map(card));
  at("grid").classList.toggle("compared", neighbors.some((one) => one.places));
  at("more").hidden = true;
  at("slider").hidden = !neighbors.some(hasDistance);
  say(headingOf(near.length, neighbors.length));
  if (near.length) suggestInstead("");
  else if (neighbors.length) suggestInstead(`The nearest item is ${short(Math.min(...neighbors.map((one) => one.distance)))} away. Raise the maximum distance to see it.`);
  else if (at("words").value.trim()) suggestInstead("No item has all of these words. An asterisk stands for any end, as in shoe*.");
  else suggestInstead(at("where").value.trim() ? "No item meets this filter. Change or clear it." : "There is no other item.");
}

function headingOf(matches, found) {
  if (found === 0) return "Nothing found";
  if (matches === 0) return `No match among the ${found} nearest`;
  if (!neighbors.some(hasDistance)) return `${found} with these words`;
  if (matches === found) return `${found} nearest`;
  return `${matches} ${matches === 1 ? "match" : "matches"} among the ${found} nearest`;
}

function settings() {
  const query = new URLSearchParams({ k: at("k").value || "24" });
  if (at("where").value.trim()) query.set("where", at("where").value.trim());
  if (at("group").value) query.set("group_by", at("group").value);
  if (at("words").value.trim()) {
    if (at("group").value) throw new Error("Words do not work with Group by. Choose nothing there, or clear the words.");
    query.set("words", at("words").value.trim());
  }
  return query;
}

// The settings of a search by a photo, whose parts may be compared.
function settingsOfPhoto(query) {
  if (!at("places").checked) return query;
  if (query.has("words")) throw new Error("Words do not work with Compare part by part. Clear one of them.");
  query.set("rerank", "places");
  return query;
}

// Answer a question in the results, unless another one has been asked meanwhile.
async function answered(question, then) {
  const mine = ++latest;
  at("message").hidden = true;
  at("results").setAttribute("aria-busy", "true");
  const waiting = setTimeout(() => say("Searching…"), 200);
  try {
    const answer = await question();
    clearTimeout(waiting);
    if (mine === latest) then(answer);
  } catch (error) {
    clearTimeout(waiting);
    if (mine !== latest) return;
    clear();
    say("");
    say(error.message, true);
  } finally {
    clearTimeout(waiting);
    if (mine === latest) at("results").removeAttribute("aria-busy");
  }
}

function search(question) {
  again = question;
  at("class").value = ""; // from now on, the settings are those of this search
  return answered(() => question(settings()), (answer) => {
    neighbors = answer.neighbors;
    asked = at("preview").hidden ? "" : at("preview").src;
    threshold = answer.threshold;
    farthest = Math.max(answer.threshold || 0, ...neighbors.map((one) => one.distance), 1e-9) * 1.001;
    at("within").value = answer.threshold === null ? STEPS : Math.round((answer.threshold / farthest) * STEPS);
    draw();
  });
}

function byWords(query) {
  return ask(`/api/search-words?${query}`);
}

// What people drop and choose: photos, or sounds where the model of the index hears.
function wanted() {
  return about.sounds ? { kind: "audio/", noun: "sound" } : { kind: "image/", noun: "photo" };
}

function byFile(file) {
  if (!file) return;
  const { kind, noun } = wanted();
  if (file.type && !file.type.startsWith(kind)) return say(`${file.name} is no ${about.sounds ? noun : "image"}.`, true);
  if (file.size > about.upload_bytes) return say(`${file.name} is larger than ${about.upload_bytes / 1e6} MB.`, true);
  at("text").value = "";
  showQuery(URL.createObjectURL(file), file.name);
  search((query) => ask(`/api/search?${settingsOfPhoto(query)}`, { method: "POST", body: file, headers: { "Content-Type": file.type || "application/octet-stream" } }));
}

// Show what is searched for: a photo, or an item of the index.
function showQuery(source, name) {
  forgetImage();
  at("preview").src = source;
  at("preview").hidden = false;
  at("drop-icon").setAttribute("hidden", "");
  at("drop-text").textContent = `Drop, paste or choose another ${wanted().noun}`;
  at("preview-name").textContent = `Searched by: ${name}`;
}

function forgetImage() {
  at("file").value = ""; // so that the same file can be chosen again
  if (!at("preview").src) return;
  URL.revokeObjectURL(at("preview").src);
  at("preview").removeAttribute("src");
  at("preview").hidden = true;
  at("drop-icon").removeAttribute("hidden");
  at("drop-text").textContent = `Drop a ${wanted().noun} here, paste one, or choose a file`;
  at("preview-name").textContent = "";
}

function json(body) {
  return { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

function browse(label, offset = 0) {
  again = null;
  forgetImage();
  const query = new URLSearchParams({ offset, limit: PAGE });
  if (label) query.set("class", label);
  if (at("where").value.trim()) query.set("where", at("where").value.trim());
  return answered(() => ask(`/api/items?${query}`), (answer) => {
    neighbors = [];
    at("slider").hidden = true; // items of a class have no distance
    const cards = answer.items.map(card);
    at("grid").classList.remove("compared");
    if (offset) at("grid").append(...cards);
    else at("grid").replaceChildren(...cards);
    say(`${answer.total.toLocaleString("en")} ${answer.total === 1 ? "item" : "items"}${label ? ` of class ${label}` : ""}`);
    suggestInstead(answer.total ? "" : "Change or clear the filter and the class.");
    const shown = offset + answer.items.length;
    at("more").hidden = shown >= answer.total;
    at("more").onclick = () => browse(label, shown);
  });
}

function show(item) {
  opened = item;
  at("item-name").textContent = item.name;
  at("item-pictures").hidden = !about.pictures;
  if (about.pictures) at("item-pictures").replaceChildren(...picturesOf(item, 800));
  const facts = { class: item.class, ...item.columns };
  if (hasDistance(item)) facts.distance = short(item.distance);
  if (item.places) facts.places = countOf(item.places);
  at("item-facts").replaceChildren(
    ...Object.entries(facts).flatMap(([key, value]) => [make("dt", "", key), make("dd", "", value === null ? "—" : String(value))]),
  );
  at("right").value = item.marked || "";
  at("marked").textContent = item.marked === null ? "" : "Marked as wrong.";
  at("item-neighbors").onclick = () => {
    opened = null;
    at("item").close();
    at("results").focus();
    if (about.pictures) showQuery(picture(item.name, 240), item.name);
    at("words").value = "";
    search((query) => {
      if (query.has("words")) {
        forgetImage();
        return byWords(query);
      }
      query.set("name", item.name);
      return ask(`/api/neighbors?${settingsOfPhoto(query)}`);
    });
  };
  at("mark").onsubmit = async (event) => {
    event.preventDefault();
    try {
      item.marked = (await ask("/api/wrong", json({ name: item.name, right: at("right").value.trim() }))).marked;
      at("marked").textContent = "Marked as wrong.";
      item.line.replaceWith(card(item));
    } catch (error) {
      at("marked").textContent = error.message;
    }
  };
  at("item").showModal();
}

let suggestions = 0;
async function suggest() {
  const mine = ++suggestions;
  const answer = await ask(`/api/classes?${new URLSearchParams({ begins: at("class").value })}`).catch(() => null);
  if (answer === null || mine !== suggestions) return;
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
  at("file").addEventListener("change", () => byFile(at("file").files[0]));
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => at("drop").classList.add("over"));
  document.addEventListener("dragleave", () => at("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    at("drop").classList.remove("over");
    if (about.images || about.sounds) byFile(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith(wanted().kind));
    if (file && (about.images || about.sounds)) byFile(file);
  });
  at("preview").addEventListener("error", () => (at("preview").hidden = true));
  at("item").addEventListener("close", () => opened && opened.line.firstChild.focus()); // its card may be a new one
  at("ask-text").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text) return say("Type some words to search for.", true);
    forgetImage();
    search((query) => ask(`/api/search-text?${query}`, json({ text })));
  });
  at("settings").addEventListener("submit", (event) => {
    event.preventDefault();
    const words = at("words").value.trim();
    if (again === byWords && !words) again = null;
    if (words && again === null) search(byWords);
    else if (at("class").value || again === null) browse(at("class").value.trim());
    else search(again);
  });
  for (const id of ["k", "group", "places"]) at(id).addEventListener("change", () => again && search(again));
  at("class").addEventListener("input", suggest);
  at("class").addEventListener("input", () => (at("words").value = "")); // a class is browsed, and words are searched
  at("within").addEventListener("input", () => neighbors.length && draw());
}

async function start() {
  about = await ask("/api/about");
  at("title").textContent = about.name;
  document.title = `${about.name} · nearfar`;
  at("about").textContent = `${about.items.toLocaleString("en")} items, ${about.classes.toLocaleString("en")} classes, ${about.distance} distance, ${about.engine}`;
  at("ask-image").hidden = !(about.images || about.sounds);
  if (about.sounds) {
    at("file").accept = "audio/*";
    at("file").setAttribute("aria-label", "Choose a sound");
    at("drop-text").textContent = `Drop a ${wanted().noun} here, paste one, or choose a file`;
  }
  at("ask-text").hidden = !about.text;
  at("words-field").hidden = !about.searches_words;
  at("ask-none").hidden = about.images || about.sounds || about.text;
  at("class-field").hidden = about.classes === 0;
  at("places-field").hidden = at("places-hint").hidden = !about.places;
  for (const column of Object.keys(about.columns).filter((one) => one !== "name")) {
    const option = make("option", "", column === "label" ? "class" : column);
    option.value = column;
    at("group").append(option);
  }
  const columns = Object.entries(about.columns);
  const number = columns.find(([, kind]) => kind === "number");
  const text = columns.find(([column, kind]) => kind === "text" && column !== "name") || ["name"];
  at("where").placeholder = [...(number ? [`${number[0]} < 10`] : []), `${text[0]} == "a"`].join(" and ");
  at("where-hint").textContent = `Filters compare ${columns.map(([column]) => column).join(", ")} with == != < <= > >= in, contains, is missing, and combine with and, or, not.`;
  listen();
  await Promise.all([suggest(), browse("")]);
}

start().catch((error) => {
  at("about").textContent = "";
  say(error.message, true);
});
