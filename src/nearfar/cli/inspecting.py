"""``nearfar inspect``: check data before training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..io.untrusted import images_from
from ..quoting import count_of
from .encoding import say
from .option_names import with_option_names
from .options import ABOUT_DATA, DATA, FORECAST, RUN, ItemOptions, Levels, Overwrite, SplitOptions, setting
from .outputs import check_out

if TYPE_CHECKING:
    from ..data.checks.inspection import Inspection

HEADS = ("part", "items", "classes", "smallest class", "median", "largest")


def inspect(
    data: Annotated[str, ABOUT_DATA],
    *,
    split: SplitOptions = SplitOptions(),
    seed: Annotated[int, Parameter(group=DATA)] = 0,
    items: ItemOptions = ItemOptions(),
    levels: Levels = (),
    partial: Annotated[bool, setting("partial", DATA)] = False,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], group=RUN)] = None,
    overwrite: Overwrite = False,
    time: Annotated[bool, Parameter(group=FORECAST)] = False,
    recipe: Annotated[str | None, Parameter(group=FORECAST)] = None,
    settings: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False, group=FORECAST)] = (),
) -> None:
    """Check data before training: items, classes, split, and anything that would spoil a result.

    Reads every item once, and reports images that cannot be decoded, identical items in two classes, test items that
    are also training items, classes with one item, and very uneven classes and features.

    Example: nearfar inspect photos/

    Parameters
    ----------
    seed
        Random seed for the test classes, unless DATA comes with a split.
    out
        Also write all findings, with every name, to this .json file.
    time
        Also time a few training batches, and estimate how long training would take.
    recipe
        Recipe of the training to time; `nearfar list --recipes` lists them.
    settings
        A setting of the training, as name=value: validation, the share of the training classes that is held out, or
        with --time any other. Repeat for several.
    """
    from ..data.checks.inspection import inspect_data
    from ..io.atomic_files import atomic_write
    from .given import given, make_config, named_values

    changed = named_values(settings)
    if recipe and not time:
        raise ValueError("--recipe: works only with --time, which times a training")
    if not time and set(changed) - {"validation"}:
        raise ValueError("--set: without --time, which times a training, works only for validation")
    chosen = given(split, items, data=data, seed=seed, levels=levels or None, partial=partial or None)
    validation = make_config(chosen | changed, recipe).validation if changed else None
    if out is not None:
        check_out(out, overwrite=overwrite)
    how: dict[str, Any] = {"test": split.test, "test_classes": split.test_classes, "split": split.split or "classes"}
    how |= {"label": items.label, "name": items.name, "skip_bad": items.skip_bad, "partial": partial, "seed": seed}
    how |= {"validation": validation, "levels": levels}
    with images_from(*items.images):
        found = inspect_data(data, **how)
    if out is not None:
        with atomic_write(out, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(found.to_dict(), file, indent=1, ensure_ascii=False)
    say(report_text(found))
    if time:
        from ..train.rungs.by_default import default_ladder
        from ..train.timing.forecast import forecast

        config = make_config(chosen | changed, recipe)
        with images_from(*items.images):
            say(f"\nTraining takes {forecast(config)}.")
        if recipe is None and default_ladder(config).runs:
            say("Before it, `nearfar train` compares cheaper rungs for a minute or two (--ladder no skips them).")
    elif found.protocol and found.numeric:  # the data can be split for a training
        say("\nTo estimate how long training would take, run `nearfar inspect DATA --time`.")


def report_text(found: Inspection) -> str:
    """Return the lines to print."""
    rows: list[Sequence[str]] = [HEADS]
    for part in found.parts:
        counts = (part.items, part.classes, part.least, part.median, part.most)
        rows.append((part.role, *(f"{count:,g}" if count < 1e6 else f"{count:,.0f}" for count in counts)))
    about = f"{found.name}: {sizes(found)}"
    options = {"split": "--split", "label": "--label", "name": "--name"}
    remarks = [f"- {with_option_names(remark, options)}" for remark in found.remarks] or ["No problems were found."]
    levels = [f"{level}." for level in found.levels]
    protocol = [found.protocol, *levels, ""] if found.protocol else levels
    return "\n".join([about, "", *aligned(rows), "", *protocol, *remarks])


def sizes(found: Inspection) -> str:
    """Return the kind of the items, and the sizes of the smallest and the largest."""
    if found.kind == "row":
        return f"rows of {count_of(found.largest[0], 'number' if found.numeric else 'column')}"
    if found.kind == "text":
        return f"texts of {_range(f'{found.smallest[0]:,}', f'{found.largest[0]:,}')} characters"
    if found.kind == "sound":
        from ..numerics.mel import SOUND_RATE

        least, most = (f"{shape[0] / SOUND_RATE:.2g}" for shape in (found.smallest, found.largest))
        return f"sounds of {_range(least, most)} seconds"
    least, most = (f"{shape[1]} x {shape[0]}" for shape in (found.smallest, found.largest))
    colors = "gray" if found.largest[2] == 1 else "color"
    return f"{colors} images of {_range(least, most)} pixels"


def _range(least: str, most: str) -> str:
    """Return both ends of a range, or the only value."""
    return least if least == most else f"{least} to {most}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of a table: the first column to the left, the others to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], wide[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(wide[0]), *numbers]))
    return lines
