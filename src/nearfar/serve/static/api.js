"use strict";
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function kindOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${kindOf(schema.items)}`;
  return [].concat(schema.type || "object").join(" or ");
}

function row(cells, tag = "td") {
  const line = make("tr");
  line.append(...cells.map((cell) => make(tag, cell)));
  return line;
}

function operation(path, method, told) {
  const section = make("section", undefined, "operation");
  const heading = make("h2");
  heading.append(make("code", `${method.toUpperCase()} ${path}`));
  section.append(heading, make("p", told.summary));
  const table = make("table");
  table.append(row(["Parameter", "Type", "Description"], "th"));
  for (const one of told.parameters || []) {
    table.append(row([one.required ? `${one.name} (needed)` : one.name, kindOf(one.schema), one.description]));
  }
  for (const [type, content] of Object.entries(told.requestBody ? told.requestBody.content : {})) {
    const properties = Object.keys(content.schema.properties || {}).join(", ");
    table.append(row(["body", type, properties || content.schema.description || ""]));
  }
  for (const [status, answer] of Object.entries(told.responses)) {
    const [type, content] = Object.entries(answer.content || {})[0] || ["", {}];
    const kind = content.schema ? kindOf(content.schema) : type;
    table.append(row([status === "default" ? "error" : `answer ${status}`, kind, answer.description]));
  }
  section.append(table);
  return section;
}

fetch("/openapi.json")
  .then((response) => response.json())
  .then((told) => {
    const sections = Object.entries(told.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, one]) => operation(path, method, one)),
    );
    document.getElementById("operations").replaceChildren(...sections);
  });
