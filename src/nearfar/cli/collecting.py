"""``nearfar duplicates``, ``groups`` and ``label-next``: what a collection is made of, without labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..trust import trusting
from .encoding import say
from .options import FOUND, RUN, DistanceName, ItemOptions, Overwrite, Trust
from .outputs import check_page_or_table, remark_outside

Compared = Annotated[
    DistanceName | None,
    Parameter(
        group=FOUND,
        help="Compare embeddings by this distance: cosine or euclidean. By default, that of the source.",
    ),
]
Embedded = Annotated[
    Path,
    Parameter(
        help="An index from `nearfar index`; an .npz, .parquet, .csv or a folder of embeddings; or what embeds "
        "DATA: a pretrained encoder such as timm:NAME or transformers:FOLDER, a run or a learner."
    ),
]
Items = Annotated[
    str | None,
    Parameter(help="The items, with a model: for example a folder of photos, or a table with a column `text`."),
]


def duplicates(
    source: Path,
    data: str | None = None,
    *,
    within: Annotated[float | None, Parameter(group=FOUND)] = None,
    k: Annotated[int, Parameter(name="-k", group=FOUND)] = 20,
    group_by: Annotated[str, Parameter(show_default=False, group=FOUND)] = "",
    distance: Compared = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Find near duplicates, and mark those with different classes.

    Example: nearfar duplicates pixels photos/ --within 0.01 -o duplicates.html

    Parameters
    ----------
    source
        An index from `nearfar index`; an .npz, .parquet, .csv or a folder of embeddings; or what embeds DATA: pixels,
        which compares thumbnails and finds copies of photos best, a pretrained encoder, a run or a learner.
    data
        The items to compare, with a model: for example a folder of photos, with or without class folders.
    within
        Group items that are at most this far apart, directly or through a chain of others. Without it, the nearest
        pairs are printed, with the distance that is suggested; --out uses that distance. If items have classes, the
        precision and the recall of the distance among pairs are printed, too.
    k
        Number of pairs to print.
    group_by
        Leave out pairs of items that have the same value in this column of the index or table, such as photos of one
        object or frames of one video, which are alike anyway.
    out
        Write the groups to a .csv (group, distance to the nearest other, class, name, decision, and the columns of an
        index), in which you can edit the column decision, or to an .html page with their pictures side by side.
        `nearfar suspects --decided` takes the table.
    """
    check_given({"-k": k}, out, overwrite=overwrite)
    from ..workflows import duplicates as find_duplicates

    say_found(
        find_duplicates, source, data, out, items, trust, within=within, k=k, group_by=group_by, distance=distance
    )


def groups(
    source: Embedded,
    data: Items = None,
    *,
    within: Annotated[float | None, Parameter(group=FOUND)] = None,
    most: Annotated[int | None, Parameter(group=FOUND)] = None,
    k: Annotated[int, Parameter(name="-k", group=FOUND)] = 20,
    distance: Compared = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Propose groups of near items that may be classes, without labels.

    Example: nearfar groups photos.index -o groups.csv

    Parameters
    ----------
    within
        Largest mean distance of two groups that are merged: larger values make larger groups. By default, several are
        tried, from the median distance of an item to its nearest to that of two items, and the one with the clearest
        groups (largest mean silhouette) is taken.
    most
        Largest number of items in a group.
    k
        Number of groups to print.
    out
        Write the items of the groups to a .csv (name, path or text, label), in which you can rename and merge labels,
        and which `nearfar train` reads; or to an .html page with their pictures.
    """
    check_given({"-k": k, "--most": most}, out, overwrite=overwrite)
    from ..workflows import groups as propose_groups

    say_found(propose_groups, source, data, out, items, trust, within=within, most=most, k=k, distance=distance)


def label_next(
    source: Embedded,
    data: Items = None,
    *,
    k: Annotated[int, Parameter(name="-k", group=FOUND)] = 20,
    by: Annotated[Literal["representative", "doubtful"], Parameter(group=FOUND)] = "representative",
    labeled: Annotated[tuple[Path, ...], Parameter(show_default=False, group=FOUND)] = (),
    distance: Compared = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    items: ItemOptions = ItemOptions(),
    overwrite: Overwrite = False,
    trust: Trust = (),
) -> None:
    """Choose the items whose labels help most.

    Example: nearfar label-next photos.index -k 100 -o labels.csv

    Parameters
    ----------
    k
        Number of items to choose.
    by
        representative: items that are near to many others, none of which has a label. doubtful: the same, but items
        between two labels count more than those near to one only.
    labeled
        A .csv with the columns name and label, such as an earlier OUT with labels filled in. Repeat for several. By
        default, the labels are the classes of the items, if only some have one.
    out
        Write the items to a .csv (name, path or text, an empty label, and the label of the nearest labeled item), which
        `nearfar train` reads once you have filled in the labels; or to an .html page with their pictures.
    """
    check_given({"-k": k}, out, overwrite=overwrite)
    from ..workflows import label_next as choose

    say_found(choose, source, data, out, items, trust, k=k, by=by, labeled=labeled, distance=distance)


def say_found(
    find: Callable[..., str],
    source: Path,
    data: str | None,
    out: Path | None,
    items: ItemOptions,
    trust: tuple[str, ...],
    **how: Any,
) -> None:
    """Print what one of these commands finds in a collection, or among items that are embedded."""
    from ..models.embedded import Selection

    selection = Selection(label=items.label, name=items.name, skip_bad=items.skip_bad)
    with images_from(*items.images), trusting(*trust):
        say(find(source, data, out, selection, on_outside=remark_outside, **how))


def check_given(counts: dict[str, int | None], out: Path | None, *, overwrite: bool) -> None:
    """Refuse numbers below 1, and a file that cannot be written."""
    for option, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{option}: expected 1 or more, got {count}")
    if out is not None:
        check_page_or_table(out, overwrite=overwrite)
