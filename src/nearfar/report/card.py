"""The model card of a run: its scores and how they were measured, and how to use it, as a README for model hubs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from ..evaluation.scores import Scores
from ..io.atomic_files import atomic_write
from ..io.scores_file import CALIBRATED, baseline_of, read_scores
from ..io.tensor_file import read_metadata
from ..io.untrusted import parse_json
from ..quoting import quoted, without_folders
from .run import ReportError, choice_of, is_untrained, kept_instead, naming_damage, read_object, run_name

CARD = "README.md"

LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
"""Pattern of the license names of hubs, such as apache-2.0."""

SETTINGS = (
    "objective",
    "trunk",
    "embedding_dim",
    "image_size",
    "epochs",
    "batch_size",
    "sampler",
    "lr",
    "metric",
    "seed",
)
UNTRAINED_SETTINGS = ("trunk", "embedding_dim", "image_size", "metric", "seed")
"""Settings that matter if nothing was trained."""


class Kind(NamedTuple):
    """How the commands of a card name items of a kind: all of them, one of them, a collection and a query."""

    items: str
    one: str
    collection: str
    query: str


PHOTOS = Kind("photos/", "image", "photos.index", "query.jpg")
DESCRIBED = Kind("photos/", "image", "photos.index", '"some words"')
SOUNDS = Kind("sounds/", "sound", "sounds.index", "query.wav")
TEXTS = Kind("texts.csv", "text", "texts.index", '"some words"')
ROWS = Kind("rows.csv", "row of the table", "rows.index", "queries.csv")


def model_card(run: str | Path, *, name: str = "", license: str = "", data: str = "") -> str:
    """Return the model card of a run in Markdown, with the header that model hubs read.

    Parameters
    ----------
    run : str or Path
        Folder of a run. If it was evaluated, the card includes its scores and their protocol.
    name : str
        Title, and name under which the model is loaded. By default, the name of the folder.
    license : str
        License of the weights, such as "apache-2.0". By default, the card states that none was given.
    data : str
        Description of the data. By default, the path or name in the settings.

    Returns
    -------
    str
        Markdown.

    Raises
    ------
    ReportError
        If the folder holds no run, or its files are damaged.
    ValueError
        If `license` is not the name of a license.

    Examples
    --------
    >>> model_card("no-such-run")
    Traceback (most recent call last):
    nearfar.report.run.ReportError: no-such-run: is not the folder of a run (it has no config.json)
    """
    folder = Path(run)
    config = read_object(folder / "config.json", needed=False)
    if not config:
        raise ReportError(f"{folder}: is not the folder of a run (it has no config.json)")
    if license and not LICENSE.fullmatch(license):
        raise ValueError(f"license: expected a name such as apache-2.0, got {quoted(license)}")
    title = name or run_name(folder)
    with naming_damage(folder):
        objective = config["objective"]
        untrained = is_untrained(config, folder)
        kept = kept_instead(folder)
        content = _content(folder)
        scores = _scores(folder, content)
        of_data = data or str(config.get("data", ""))
        scores += _in_8_bits(folder)
        training = _training(folder, config, of_data, untrained=untrained)
        header = _header(license, title, without_folders(of_data), content)
    lines = [*header, f"# {title}", ""]
    if untrained:
        origin = "A pretrained network; nothing was trained"
    elif kept:
        origin = f"It is {kept}, which held-out items prefer to the network that was trained with `{objective}`"
    else:
        origin = f"Trained with `{objective}`"
    lines += [f"An embedding model, which maps similar items to nearby vectors. {origin}."]
    lines += ["", "## Intended use and limits", "", *_limits(content)]
    lines += ["", "## Use", "", *_usage(title, str(config.get("trunk", "")), _kind(folder)), "", *scores, *training]
    terms = license or "none was given; ask the author of the model before you use it"
    lines += ["## License", "", f"{terms[0].upper()}{terms[1:]}.", ""]
    return "\n".join(lines)


def write_card(run: str | Path, path: str | Path | None = None, **about: str) -> Path:
    """Write the model card of a run.

    Parameters
    ----------
    run : str or Path
        Folder of a run.
    path : str or Path, optional
        File to write. By default, README.md in the folder of the run.
    **about : str
        Title, license and data of the card, as for `model_card`.
    """
    target = Path(path) if path is not None else Path(run) / CARD
    text = model_card(run, **about)
    # the names of files may not be UTF-8
    with atomic_write(target, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return target


def _header(license: str, title: str, data: str, content: Mapping[str, Any] | None) -> list[str]:
    """Return the header in YAML. Texts are quoted as in JSON, which YAML includes."""
    lines = ["---", "library_name: nearfar", "pipeline_tag: feature-extraction"]
    lines += ["tags:", "- metric-learning", "- embeddings", "- similarity-search"]
    if license:
        lines += [f"license: {license}"]
    if content is not None:
        lines += ["model-index:", f"- name: {json.dumps(title)}", "  results:", "  - task:"]
        lines += ["      type: feature-extraction", "      name: Retrieval"]
        lines += ["    dataset:", "      type: custom", f"      name: {json.dumps(data or 'data of the run')}"]
        lines += ["    metrics:"]
        for name, value, _ in _scores_in(content).rows():
            if not isnan(value):
                kind = re.sub(r"[^a-z0-9]+", "_", name.lower().replace("@", "_at_")).strip("_")
                lines += [f"    - type: {kind}", f"      value: {value:.6g}", f"      name: {json.dumps(name)}"]
    return [*lines, "---", ""]


def _limits(content: Mapping[str, Any] | None) -> list[str]:
    lines = [
        "The embeddings rank items like those of the training by their similarity: for search, near duplicates and "
        "grouping, by cosine distance. A distance is no probability that two items are of the same class; `nearfar "
        "evaluate --protocol verification` finds a threshold on your data."
    ]
    if content is None:
        limits = "Nothing is known about its errors until it is evaluated on your data."
    else:
        limits = (
            "The scores below are of the classes and items that the protocol names. Items of another source may be "
            "ranked worse; evaluate the model on some of them first. The scores are means, and single classes may be "
            "far below them."
        )
    return [*lines, "", limits]


def _kind(folder: Path) -> Kind:
    """Return which kind of items a run embeds, by its checkpoint; photos if it has none yet."""
    path = folder / "best.safetensors"
    if not path.is_file():
        return PHOTOS
    about = read_metadata(path)
    has_texts = "tokenizer" in about
    if len(parse_json(about["shape"])) == 3:
        return DESCRIBED if has_texts else PHOTOS
    if has_texts:
        return TEXTS
    return SOUNDS if "sounds" in about else ROWS


def _usage(title: str, trunk: str, kind: Kind) -> list[str]:
    folder = title.rpartition("/")[2]
    extra = "deep"
    if kind is SOUNDS:
        extra = "deep,sounds"
    elif kind in (PHOTOS, DESCRIBED) and trunk.startswith(("timm:", "transformers:")):
        extra = "photos"
    others = []
    if kind in (TEXTS, DESCRIBED) or trunk.startswith("transformers:"):
        others.append("transformers")
    download = []
    if "/" in title:
        download = ["from huggingface_hub import snapshot_download", ""]
        others.append("huggingface_hub")
        path = f'snapshot_download("{title}")'
        command = f"hf download {title} --local-dir {folder}"
        first = [f"On the command line, after `pip install huggingface_hub` and `{command}`:"]
    else:
        path = f'"{folder}"'
        first = ["On the command line:"]
    return [
        "```",
        " ".join([f"pip install 'nearfar[{extra}]'", *others]),
        "```",
        "",
        "```python",
        *download,
        "from nearfar.train import embed_run",
        "",
        f"folder = {path}  # of this model",
        f'embeddings = embed_run(folder, "{kind.items}")  # one row for each {kind.one}',
        "```",
        "",
        *first,
        f"`nearfar index {folder} {kind.items} -o {kind.collection}`, then "
        f"`nearfar search {kind.collection} {kind.query}`.",
    ]


def _content(folder: Path) -> dict[str, Any] | None:
    """Return the content of the scores of a run, None if it was not evaluated."""
    if not (folder / "scores.json").is_file():
        return None
    try:
        return read_scores(folder / "scores.json")
    except ValueError as error:
        raise ReportError(str(error)) from error


def _scores_in(content: Mapping[str, Any]) -> Scores:
    counts = {name: int(value) for name, value in content["scores"].items() if name.startswith("n_")}
    return Scores.from_dict(content["scores"] | counts)


def _scores(folder: Path, content: Mapping[str, Any] | None) -> list[str]:
    if content is None:
        return ["## Scores", "", "This model was not evaluated. `nearfar evaluate` scores it.", ""]
    scores = _scores_in(content)
    lines = ["## Scores", "", content["protocol"], ""]
    if content["images_to_texts"] is not None:  # raw texts and raw images cannot be compared, so there is no baseline
        others = Scores.from_dict(content["images_to_texts"])
        lines += ["| score | text to image | image to text | chance |", "| --- | ---: | ---: | ---: |"]
    else:
        name, baseline = baseline_of(content)
        others = scores if baseline is None else Scores.from_dict(baseline)
        lines += [f"| score | value | baseline ({name}) | chance |", "| --- | ---: | ---: | ---: |"]
    compared = {} if others is scores else {name: value for name, value, _ in others.rows()}
    for score, value, chance in scores.rows():
        cells = [_number(value), _number(compared.get(score)), _number(chance)]
        lines += [f"| {score} | {' | '.join(cells)} |"]
    lines += ["", f"{scores.protocol_line()}.", ""]
    remarks = [*choice_of(folder), *(content.get("remarks") or [])]
    if remarks:
        lines += ["What stood out:", "", *(f"- {remark}" for remark in remarks), ""]
    return lines


def _in_8_bits(folder: Path) -> list[str]:
    """Return what the last export in 8 bits cost, if there was one and the weights are older than it."""
    note = folder / CALIBRATED
    weights = folder / "best.safetensors"
    if not note.is_file() or (weights.is_file() and weights.stat().st_mtime > note.stat().st_mtime):
        return []
    found = read_object(note)
    recall = found.get("recall_at_1")
    text = f"a mean cosine of {_number(found['cosine'])} to those of the network"
    if recall is not None:
        text += f", and a Recall@1 of {_number(recall['int8'])} instead of {_number(recall['float32'])}"
    measured = f"measured on {found['items']:,} items of {found['data']}"
    return ["## In 8 bits", "", f"Exported to ONNX in 8 bits, its embeddings have {text} ({measured}).", ""]


def _training(folder: Path, config: Mapping[str, Any], data: str, *, untrained: bool) -> list[str]:
    environment = read_object(folder / "environment.json", needed=False)
    versions = environment.get("versions", {})
    settings = UNTRAINED_SETTINGS if untrained else SETTINGS
    lines = ["## Training", "", f"- data: {without_folders(data)}"]
    if environment.get("weights"):
        weights = without_folders(str(environment["weights"]))
        lines += [f"- {weights[0].lower()}{weights[1:]}"]
    lines += [f"- {name}: {without_folders(config[name])}" for name in settings if config.get(name) is not None]
    if config.get("preprocessing"):
        lines += [f"- preprocessing: {config['preprocessing']}"]
    if versions:
        lines += [f"- versions: {', '.join(f'{package} {version}' for package, version in versions.items())}"]
    return [*lines, ""]


def _number(value: float | None) -> str:
    return "" if value is None or isnan(value) else f"{value:.4f}"
