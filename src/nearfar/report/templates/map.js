// The map: zoom, drag, a class to highlight, and the neighbors of a clicked item.
const map = document.getElementById("map-drawing");
if (map) {
  const {classes, items} = JSON.parse(document.getElementById("map-data").textContent);
  const marks = [...map.querySelectorAll("[data-item]")];
  const whole = map.viewBox.baseVal;
  const all = [whole.x, whole.y, whole.width, whole.height];
  let view = [...all];
  const show = () => map.setAttribute("viewBox", view.join(" "));
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const place = () => {
    view[0] = clamp(view[0], all[0], all[0] + all[2] - view[2]);
    view[1] = clamp(view[1], all[1], all[1] + all[3] - view[3]);
    show();
  };
  const zoom = (factor, x = 0.5, y = 0.5) => {
    const width = clamp(view[2] / factor, all[2] / 24, all[2]);
    const height = width * all[3] / all[2];
    view = [view[0] + x * (view[2] - width), view[1] + y * (view[3] - height), width, height];
    place();
  };
  const at = event => {
    const box = map.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  map.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;  // a plain wheel scrolls the page
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...at(event));
  }, {passive: false});
  map.addEventListener("dblclick", event => zoom(2, ...at(event)));
  let last = null;
  let moved = 0;
  map.addEventListener("pointerdown", event => {
    last = at(event);
    moved = 0;
  });
  addEventListener("pointermove", event => {
    if (!last || view[2] >= all[2]) return;
    const now = at(event);
    moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
    view[0] -= (now[0] - last[0]) * view[2];
    view[1] -= (now[1] - last[1]) * view[3];
    last = now;
    place();
  });
  addEventListener("pointerup", () => { last = null; });

  const thumbnail = k => {
    const picture = document.getElementById("map-image");
    const mark = marks[k];
    if (!picture) return mark.cloneNode(true);
    const [x, y, side] = ["x", "y", "width"].map(name => mark.getAttribute(name));
    const cut = document.createElementNS(map.namespaceURI, "svg");
    cut.setAttribute("viewBox", [x, y, side, side].join(" "));
    cut.setAttribute("class", "thumbnail");
    cut.setAttribute("aria-hidden", "true");
    const use = document.createElementNS(map.namespaceURI, "use");
    use.setAttribute("href", "#map-image");
    cut.append(use);
    return cut;
  };
  const card = (k, name, kind, note, right) => {
    const entry = build("li", "", {className: right === undefined ? "" : right ? "right" : "wrong"});
    const label = [name, kind].filter(Boolean).join(", ");
    const picture = document.getElementById("map-image");
    if (k !== null && picture) entry.append(thumbnail(k));
    const text = k === null ? build("span", label) : buttonOf(label, () => open(k));
    entry.append(text, build("small", [note, right === undefined ? "" : right ? "same class" : "another class"]
      .filter(Boolean).join(", ")));
    return entry;
  };
  const panel = build("div", "", {className: "panel", hidden: true});
  panel.setAttribute("aria-live", "polite");
  const open = k => {
    const [name, kind, near] = items[k];
    marks.forEach(mark => mark.classList.remove("chosen", "near"));
    marks[k].classList.add("chosen");
    const list = build("ol");
    list.append(card(k, name, classes[kind], "chosen"));
    for (const entry of near) {
      if (typeof entry[0] === "number") {
        const [other, distance] = entry;
        marks[other].classList.add("near");
        list.append(card(other, items[other][0], classes[items[other][1]], distance, items[other][1] === kind));
      } else {
        const [other, otherKind, distance] = entry;
        list.append(card(null, other, otherKind, distance, otherKind === classes[kind]));
      }
    }
    panel.replaceChildren(build("h3", near.length ? "Nearest neighbors of " + name : name), list);
    if (!near.length) panel.append(build("p", "It has nothing to find: no other item has its class."));
    panel.hidden = false;
  };
  marks.forEach((mark, k) => mark.addEventListener("click", () => { if (moved < 0.01) open(k); }));

  const tools = build("div", "", {className: "tools"});
  const field = (text, hint, options, act) => {
    const label = build("label", text + " ");
    const input = build("input", "", {type: "search", placeholder: hint});
    const list = build("datalist", "", {id: "map-" + text.toLowerCase()});
    list.append(...options.map(value => build("option", "", {value})));
    input.setAttribute("list", list.id);
    input.addEventListener("input", () => act(input.value));
    label.append(input, list);
    tools.append(label);
  };
  field("Class", "highlight a class", classes, value => {
    const wanted = value.toLowerCase();
    map.classList.toggle("filtered", wanted !== "");
    marks.forEach((mark, k) => {
      mark.classList.toggle("other", wanted !== "" && !classes[items[k][1]].toLowerCase().includes(wanted));
    });
  });
  field("Item", "show its neighbors", items.map(item => item[0]), value => {
    const k = items.findIndex(item => item[0] === value);
    if (k >= 0) open(k);
  });
  tools.append(
    buttonOf("Zoom in", () => zoom(1.6)),
    buttonOf("Zoom out", () => zoom(1 / 1.6)),
    buttonOf("Whole map", () => { view = [...all]; show(); }),
  );
  map.closest("figure").prepend(tools);
  map.closest(".scroll").after(panel);
}
