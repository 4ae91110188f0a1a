"""``nearfar search``: the neighbors of queries in an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import NEIGHBORS, QUERIES, RUN, Overwrite, TextOrNone, Trust
from .outputs import check_page_or_table, remark_outside


def search(
    file: Path,
    query: TextOrNone = "",
    *,
    k: Annotated[int, Parameter(name="-k", group=NEIGHBORS)] = 5,
    within: Annotated[float | None, Parameter(group=NEIGHBORS)] = None,
    where: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    words: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    group_by: Annotated[str, Parameter(show_default=False, group=NEIGHBORS)] = "",
    exclude_self: Annotated[bool, Parameter(group=NEIGHBORS)] = False,
    run: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    overwrite: Overwrite = False,
    label: Annotated[str | None, Parameter(group=QUERIES)] = None,
    name: Annotated[str | None, Parameter(group=QUERIES)] = None,
    images: Annotated[tuple[Path, ...], Parameter(name="--images", show_default=False, group=QUERIES)] = (),
    skip_bad: Annotated[bool, Parameter(group=QUERIES)] = False,
    rerank: Annotated[str | None, Parameter(group=NEIGHBORS)] = None,
    adapter: Annotated[Path | None, Parameter(group=QUERIES)] = None,
    trust: Trust = (),
) -> None:
    """Search an index for the items nearest to an image, a text, rows, or every item of a data set.

    Example: nearfar search photos.index query.jpg -k 5

    Parameters
    ----------
    file
        An index from `nearfar index`: a file, a folder such as photos.lance, http://HOST:19530/photos, or
        'postgresql://HOST/DATABASE#photos'.
    query
        An image, a folder of images, an .npy or .npz of rows, or any data that `nearfar train` takes. If the model
        embeds texts, also a text such as "red shoes". It may be left out with --words.
    k
        Number of neighbors of each query.
    within
        Only neighbors within this distance; a query may then have none. By default the threshold of the index
        (`nearfar index --threshold`), if there is one; inf disables it.
    where
        Only items that meet this condition, such as 'price < 10 and shop == "a"', on name, label and the columns of the
        index.
    words
        Only items with all of these words in their name, class or columns, such as "red shoe*", the best match first.
        With QUERY, items near to it and items with these words are ranked together (reciprocal rank fusion). It works
        for a file and for PostgreSQL.
    group_by
        Only the nearest item for each value of this column, such as product.
    exclude_self
        Leave out the query itself, where it is an item of the index: the one with the same name. With --group-by, also
        leave out its group, such as other photos of the product.
    run
        The run or learner that embeds the queries. It is needed if the one that made the index was moved, or if the
        index was made from a file of embeddings.
    out
        Write the result to a .csv (query, rank, distance, class, name, and the columns of the index) or to an .html
        page with pictures, instead of printing it.
    label
        Column of a table of queries that holds their classes; it is not used as a feature.
    name
        Column of a table of queries that holds the names of its rows. By default `name`, or a column such as id, sku,
        item_id or uid, if its cells are different.
    images
        Also read images from this folder, if the paths in a table, or links, lead out of the folder of QUERY, and show
        pictures of the index from it, which otherwise come from below the folder of the index. Repeat for several.
    skip_bad
        Skip queries that cannot be decoded; their number is reported.
    rerank
        Re-rank neighbors with the help of the other items of the index: expand_queries, augment_gallery, k_reciprocal
        or csls, with settings if needed, such as "expand_queries(k=10)". Or compare the first hits with a query image
        part by part: places, or "places(first=20)"; an .html page then outlines what matches. The distances are those
        of the method.
    adapter
        An adapter made by `nearfar adapt`: queries are embedded by --run, the new model, and mapped into the space of
        the model that made the index.
    """
    from ..workflows.searching import search_lines

    if out is not None:
        check_page_or_table(out, overwrite=overwrite)
    with images_from(*images), trusting(*trust):
        lines = search_lines(
            file,
            query,
            k=k,
            within=within,
            where=where,
            words=words,
            group_by=group_by,
            exclude_self=exclude_self,
            run=run,
            adapter=adapter,
            out=out,
            on_outside=remark_outside,
            label=label,
            name=name,
            skip_bad=skip_bad,
            rerank=rerank,
        )
    say(lines)
