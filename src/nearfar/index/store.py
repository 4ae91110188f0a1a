"""Write embeddings into a Milvus collection, to search them on a server or a cluster. Needs the extra `store`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..progress import counted
from .index import Index

__all__ = ["to_milvus"]

METRICS = {"cosine": "COSINE", "euclidean": "L2", "sqeuclidean": "L2"}
BATCH = 1000  # items sent at a time
MAX_VARCHAR_BYTES = 65_535  # bytes of a name or a class, which is Milvus's own limit


def to_milvus(index: Index, uri: str, collection: str, *, token: str = "", add: bool = False) -> int:
    """Write the items of an index to a Milvus collection: `name` (the key), `embedding` and, if there are any, `label`.

    Parameters
    ----------
    index : Index
        The index.
    uri : str
        A file for Milvus Lite, such as "photos.db", or the address of a server, such as "http://localhost:19530".
    collection : str
        Name of the collection: letters, digits and underscores.
    token : str
        Credentials for the server, such as "user:password".
    add : bool
        Write to an existing collection; items with the same names are replaced.

    Returns
    -------
    int
        Number of items in the collection.

    Raises
    ------
    ValueError
        If the collection exists and `add` is False, or it has embeddings of another length or another metric.
    OSError
        If the server does not answer, or reports an error.

    Notes
    -----
    For Milvus, a larger cosine is nearer, and Euclidean distances are squared. The distances of this library are 1
    minus the cosine, and the square root of the squared distance.
    """
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    try:
        client = MilvusClient(uri, token=token)
    except MilvusException as error:
        raise OSError(f"{uri}: {error.message}") from error
    try:
        if not client.has_collection(collection):
            _create(client, index, collection)
        elif not add:
            raise ValueError(f"collection: {uri} has {collection!r} already; add to it, or choose another name")
        else:
            _check_alike(client, index, collection)
        starts = range(0, len(index), BATCH)
        for start in counted(starts, "storing", len(starts)):
            client.upsert(collection, _items(index, slice(start, start + BATCH)))
        client.flush(collection)
        return int(client.query(collection, filter="", output_fields=["count(*)"])[0]["count(*)"])
    except MilvusException as error:
        raise OSError(f"{uri}: {error.message}") from error
    finally:
        client.close()


def _create(client: Any, index: Index, collection: str) -> None:
    from pymilvus import DataType

    schema = client.create_schema()
    schema.add_field("name", DataType.VARCHAR, is_primary=True, auto_id=False, max_length=MAX_VARCHAR_BYTES)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=index.embeddings.shape[1])
    if index.labels is not None and index.labels.dtype.kind == "i":
        schema.add_field("label", DataType.INT64)
    elif index.labels is not None:
        schema.add_field("label", DataType.VARCHAR, max_length=MAX_VARCHAR_BYTES)
    searched = client.prepare_index_params()
    searched.add_index("embedding", index_type="AUTOINDEX", metric_type=METRICS[index.distance])
    client.create_collection(collection, schema=schema, index_params=searched)


def _check_alike(client: Any, index: Index, collection: str) -> None:
    fields = {field["name"]: field for field in client.describe_collection(collection)["fields"]}
    if "embedding" not in fields:
        raise ValueError(f"collection: {collection!r} has no field embedding; it was not written by this library")
    there = int(fields["embedding"]["params"]["dim"])
    here = index.embeddings.shape[1]
    if there != here:
        raise ValueError(f"collection: {collection!r} has embeddings of {there} dimensions, the index has {here}")
    if ("label" in fields) != (index.labels is not None):
        has = "labels" if "label" in fields else "no labels"
        raise ValueError(
            f"collection: {collection!r} has {has}, the index has {'none' if 'label' in fields else 'some'}"
        )
    wanted = METRICS[index.distance]
    for name in client.list_indexes(collection, field_name="embedding"):
        metric = client.describe_index(collection, name)["metric_type"]
        if metric != wanted:
            own = f"{index.distance} distance ({wanted})"
            raise ValueError(f"collection: {collection!r} compares by {metric}, the index by the {own}")


def _items(index: Index, part: slice) -> list[dict[str, Any]]:
    columns: dict[str, Any] = {
        "name": index.names[part].tolist(),
        "embedding": list(np.asarray(index.embeddings[part])),
    }
    if index.labels is not None:
        columns["label"] = index.labels[part].tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
