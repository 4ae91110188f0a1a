"""Description of the API in OpenAPI 3.1; `/docs` shows it without external resources."""

from __future__ import annotations

from typing import Any

from .. import __version__
from .bodies import BODIES, schema_of
from .guard import Limits
from .parameters import MAX_COMPARED

ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "class", "columns", "marked"],
    "properties": {
        "name": {"type": "string"},
        "class": {"type": ["string", "null"]},
        "columns": {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}},
        "marked": {"type": ["string", "null"], "description": "Its correct class, if its label was marked as wrong."},
    },
}
NEIGHBOR: dict[str, Any] = {
    "allOf": [
        {"$ref": "#/components/schemas/Item"},
        {
            "type": "object",
            "required": ["distance", "match"],
            "properties": {
                "distance": {"type": ["number", "null"], "description": "Null if only words were searched."},
                "match": {"type": "boolean", "description": "Whether it is within the threshold."},
                "places": {"$ref": "#/components/schemas/Places"},
            },
        },
    ]
}
SIDES = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 4, "maxItems": 4}
BOXES = {"type": "array", "items": SIDES}
PLACES: dict[str, Any] = {
    "type": "object",
    "description": "Where an item matches the image of the query, with rerank=places.",
    "required": ["matching", "of", "query", "item"],
    "properties": {
        "matching": {"type": "integer", "description": "Number of places that match."},
        "of": {"type": "integer", "description": "Number of all places of an image."},
        "query": {**BOXES, "description": "Left, top, right and bottom of each, in shares of width and height."},
        "item": {**BOXES, "description": "The same in the picture of the item, in the same order."},
    },
}
FOUND: dict[str, Any] = {
    "type": "object",
    "required": ["threshold", "distance", "neighbors"],
    "properties": {
        "threshold": {"type": ["number", "null"]},
        "distance": {"enum": ["cosine", "euclidean", "sqeuclidean"]},
        "neighbors": {"type": "array", "items": {"$ref": "#/components/schemas/Neighbor"}},
    },
}
ERROR: dict[str, Any] = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
SCHEMAS = {"Item": ITEM, "Neighbor": NEIGHBOR, "Places": PLACES, "Found": FOUND, "Error": ERROR}

NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
VECTOR = {"type": "object", "required": ["vector"], "properties": {"vector": NUMBERS}, "additionalProperties": False}
ROW = {"type": "object", "required": ["row"], "properties": {"row": NUMBERS}, "additionalProperties": False}
IMAGE = {"type": "string", "format": "binary", "description": "The bytes of an image file, and not a form."}


def specification(limits: Limits, *, bearer: bool, writes: bool = False) -> dict[str, Any]:
    """Return the description of the API; `bearer` and `writes` tell whether it requires a token, and changes items."""
    hits = answer("The nearest items, nearest first.", "Found")
    item = answer("The item.", "Item")
    options = [
        query("k", {"type": "integer", "minimum": 1, "maximum": 200, "default": 12}, "Neighbors."),
        query("within", {"type": "number", "minimum": 0}, "The threshold of a match; by default that of the index."),
        query("where", {"type": "string"}, 'A filter such as price < 10 and shop == "a".'),
        query("group_by", {"type": "string"}, "Only the nearest item for each value of this column."),
        query("words", {"type": "string"}, "Rank together with items that have these words (rank fusion)."),
    ]
    rerank = query(
        "rerank",
        {"type": "string"},
        f"places, or places(first=20): compare the first hits, up to {MAX_COMPARED}, with the image part by part. "
        "Distances are then those of this method. /api/about tells whether the index can do it (places).",
    )
    offset = query("offset", {"type": "integer", "minimum": 0, "default": 0}, "How many to skip; `next` of a page.")
    name = query("name", {"type": "string"}, "The name of an item.", required=True)
    words = query("words", {"type": "string"}, "Such as red shoe*.", required=True)
    megabytes = limits.upload_bytes // 1_000_000
    pixels = limits.upload_pixels // 1_000_000
    paths = {
        "/api/about": {"get": operation("Describe the index.", answer("Size, distance, engine, columns."))},
        "/api/search": {
            "post": operation(
                f"Find the items nearest to an image, up to {megabytes} MB and {pixels} million pixels, as the body, "
                "to an embedding (vector), or to numbers that the model embeds (row).",
                hits,
                parameters=[*options, rerank],
                body={"image/*": {"schema": IMAGE}, "application/json": {"schema": {"oneOf": [VECTOR, ROW]}}},
            )
        },
        "/api/search-text": {
            "post": operation(
                "Find the items nearest to a text, if the model embeds texts.",
                hits,
                parameters=options,
                body=json_body({"text": {"type": "string"}}, ["text"]),
            )
        },
        "/api/search-words": {
            "get": operation(
                "Find items by all words in their names, classes and columns, the best match first.",
                hits,
                parameters=[words, options[0], options[2]],
            )
        },
        "/api/search-batch": {
            "post": operation(
                "Find the items nearest to each of up to 100 embeddings.",
                answer("The neighbors of each embedding."),
                parameters=options,
                body=schema("Vectors"),
            )
        },
        "/v1/embeddings": {
            "post": operation(
                "Embed texts, or images as data URLs, as the API of OpenAI does.",
                answer("Embeddings."),
                body=schema("EmbeddingInput"),
            )
        },
        "/api/neighbors": {
            "get": operation(
                "Find the items nearest to an item, without the item itself. With group_by, also without its group.",
                hits,
                parameters=[name, *options[:-1], rerank],
            )
        },
        "/api/items": {
            "get": operation(
                "List items.",
                answer("A page of items, the number of all items, and the offset of the next page (null for none)."),
                parameters=[
                    query("class", {"type": "string"}, "Only of this class."),
                    options[2],
                    offset,
                    query(
                        "limit",
                        {"type": "integer", "minimum": 1, "maximum": 200, "default": 60},
                        "Maximum number of items.",
                    ),
                ],
            )
        },
        "/api/item": {"get": operation("Show an item.", item, parameters=[name])},
        "/api/classes": {
            "get": operation(
                "List classes.",
                answer("A page of classes with their numbers of items, as for /api/items."),
                parameters=[
                    query("begins", {"type": "string"}, "Prefix of the names."),
                    offset,
                    query(
                        "limit",
                        {"type": "integer", "minimum": 1, "maximum": 200, "default": 200},
                        "Maximum number of classes.",
                    ),
                ],
            )
        },
        "/api/picture": {
            "get": operation(
                "Show the picture of an item.",
                {"200": {"description": "A JPEG.", "content": {"image/jpeg": {}}}},
                parameters=[
                    name,
                    query("side", {"type": "integer", "minimum": 16, "maximum": 1024, "default": 240}, "Longer side."),
                ],
            )
        },
        "/api/wrong": {
            "post": operation(
                "Mark the label of an item as wrong; marks are stored in a table.",
                {"201": {**item["200"]}},
                body=json_body({"name": {"type": "string"}, "right": {"type": "string"}}, ["name"]),
            )
        },
    }
    if writes:
        paths["/api/add"] = {
            "post": operation(
                "Add items, or replace those of the same names; after an error, none is. It may be repeated.",
                answer("How many were added and replaced."),
                body=schema("NewItems"),
            )
        }
        paths["/api/remove"] = {
            "post": operation(
                "Remove items by their names; others are skipped. It may be repeated.",
                answer("How many were removed."),
                body=schema("Names"),
            )
        }
    bodies = {kind.__name__: schema_of(kind) for kind in BODIES}
    content: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "nearfar serve", "version": __version__, "description": "Search an index by picture."},
        "paths": paths,
        "components": {"schemas": {**SCHEMAS, **bodies}},
    }
    if bearer:
        content["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        content["security"] = [{"token": []}]
    return content


def operation(
    summary: str,
    answers: dict[str, Any],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one operation; errors of a request are one sentence in `error`."""
    error = {"description": "Error message of one sentence.", "content": schema("Error")}
    described: dict[str, Any] = {"summary": summary, "responses": {**answers, "default": error}}
    if parameters:
        described["parameters"] = parameters
    if body:
        described["requestBody"] = {"required": True, "content": body}
    return described


def query(name: str, kind: dict[str, Any], description: str, *, required: bool = False) -> dict[str, Any]:
    """Return one parameter of a query."""
    return {"name": name, "in": "query", "required": required, "schema": kind, "description": description}


def answer(description: str, name: str = "") -> dict[str, Any]:
    """Return a successful response, with a named schema or any object."""
    content = schema(name) if name else {"application/json": {"schema": {"type": "object"}}}
    return {"200": {"description": description, "content": content}}


def schema(name: str) -> dict[str, Any]:
    """Return a JSON body with a named schema."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def json_body(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return a JSON body with these properties."""
    kind = {"type": "object", "required": required, "properties": properties}
    return {"application/json": {"schema": kind}}
