"""Use of a finished run: load its network, embed data sets, and score the test classes."""

from __future__ import annotations

import hashlib
import io
import math
import os
import zipfile
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from ..data import Dataset, Task
from ..data.checks.columns import scale_warning
from ..data.checks.shared_images import remark_shared
from ..data.dataset import images_once, some, unwrapped
from ..data.decode import DECODING, read_square
from ..data.readers.arrays import arrays_of_class_labels
from ..data.sounds import PieceReader, in_pieces
from ..deep.networks.embedder import Embedder
from ..deep.networks.preprocessing import FROM_HEADER
from ..deep.networks.sound_trunk import LogMel
from ..deep.networks.standardize import Standardize
from ..deep.networks.text_settings import Role
from ..deep.networks.tokens import Tokens
from ..deep.networks.weights import PRETRAINED
from ..deep.networks.whiten import Whiten
from ..evaluation.by_class import scores_by_class
from ..evaluation.protocol import evaluate_queries
from ..evaluation.retrieval import Retrieval
from ..evaluation.scores import Scores
from ..io.scores_file import FROZEN, RAW, STANDARDIZED
from ..labels import narrow_texts
from ..progress import counted
from ..quoting import count_of
from .checkpoint import (
    columns_of,
    first_weights,
    preserve_random_state,
    prompt_of,
    prompts_of,
    read_about,
    replace_file,
    shape_of,
)
from .config import TrainConfig, TrainError
from .features import (
    Floats,
    all_rows,
    are_recognized,
    cached_features,
    digest_of_items,
    digest_of_network,
    embed,
    encode,
    sizes_of,
)
from .loading import FLAT_TRUNKS, build_embedder, folder_and_config, network_config
from .metric import whitened, whitening_note
from .pairs import embed_texts, scores_both_ways, text_set
from .relevance import IN_COMMON, Searched, with_relevance
from .remarks import course, random_trunk, remarks
from .run import Run, RunFolder, write_json
from .rungs.closed_forms import FORMS
from .rungs.frozen import frozen_features
from .task import class_mark, open_data, sizes_in, tokenized

MAX_BASELINE_PIXELS = 64 * 64  # larger images, gray or in color, are reduced before their pixels are compared
RAW_SIDE = 32  # pixels, to which they are reduced


class Result(NamedTuple):
    """Scores on the test classes.

    Attributes
    ----------
    scores : Scores
        Scores of the embeddings of the best checkpoint. For pairs, of texts that search images.
    raw : Scores or None
        Scores of the raw pixels or rows; None for texts, and for pairs, whose texts are compared with images.
    protocol : str
        Data, classes, items, how they were split, and what chose the checkpoint.
    remarks : tuple of str
        Remarks on the training, each with a suggestion.
    without_metric : Scores or None
        Scores of the embeddings before the closed-form metric; None if the checkpoint has none.
    standardized : bool
        Whether `raw` are scores of standardized rows, as the network sees them.
    images_to_texts : Scores or None
        For pairs, scores of images that search texts.
    frozen : Scores or None
        Scores of the features of the trunk before the training; None if it started from random weights.
    by_class : dict
        Recall@1 with its interval, MAP@R and the number of queries of each class; empty for pairs.
    kept : str
        Which model the run keeps, and by how much it was better than others; "" if another checkpoint is scored.
    """

    scores: Scores
    raw: Scores | None
    protocol: str
    remarks: tuple[str, ...] = ()
    without_metric: Scores | None = None
    standardized: bool = False
    images_to_texts: Scores | None = None
    frozen: Scores | None = None
    by_class: Mapping[str, Mapping[str, Any]] = {}
    kept: str = ""

    @property
    def baseline(self) -> Scores | None:
        """Scores that a training has to improve: of the pretrained trunk's features, otherwise of the raw inputs."""
        return self.raw if self.frozen is None else self.frozen

    @property
    def baseline_name(self) -> str:
        """What `baseline` are scores of."""
        if self.frozen is not None:
            return FROZEN
        return STANDARDIZED if self.standardized else RAW


def with_prompt_tokens(network: Embedder, count: int | None) -> Embedder:
    """Return a network of the same weights whose pooling leaves out this many tokens of a prompt; None changes nothing.

    The network itself stays as it is, because other threads may use it.
    """
    if count is None:
        return network
    if network.text is not None:
        return _with_part(network, "text", with_prompt_tokens(network.text, count))
    module: Any = getattr(network.trunk, "module", network.trunk)
    changed = copy(module)
    changed.pooling = msgspec.structs.replace(module.pooling, prompt_tokens=count)
    if module is not network.trunk:
        changed = _with_part(network.trunk, "module", changed)
    return _with_part(network, "trunk", changed)


def _with_part(module: Any, name: str, part: torch.nn.Module) -> Any:
    """Return a copy of a module, of the same weights, with another part."""
    found = copy(module)
    found._modules = {**module._modules, name: part}
    return found


def _network(run: Run | str | Path, folder: RunFolder, config: TrainConfig, which: str) -> Embedder:
    """Return the network of a run: the one in memory, or that of a checkpoint."""
    if which == "best" and isinstance(run, Run) and run.embedder is not None:
        return run.embedder
    return build_embedder(folder, config, which)


def as_trained(
    dataset: Dataset, config: TrainConfig, about: dict[str, Any], owner: str, prompt: Role | None = None
) -> tuple[Dataset, dict[str, Any]]:
    """Return items with their columns in the order of a network, and how they are read, as keywords of `embed`.

    Texts get the `prompt` of what they are, or that of the training.

    Raises
    ------
    TrainError, DataError
        As `DeepMetric.embed`; `owner` is whose network it is.
    """
    shape = shape_of(about)
    columns = columns_of(about)
    if dataset.kind == "text":
        return tokenized(dataset, tokens_of(about, owner, dataset.name, prompt)), {}
    if dataset.columns and isinstance(about.get("tokenizer"), str):
        numbers = count_of(len(dataset.columns), "number")
        raise TrainError(
            f"{dataset.name}: the network of {owner} takes texts, got rows of {numbers} ({some(dataset.columns, 3)}); "
            "expected a table with a column `text`, and no columns of numbers"
        )
    if dataset.kind == "sound" and about.get("sounds") is True:
        return in_pieces(dataset, shape[0]), {"workers": config.workers}
    if about.get("sounds") is True:
        raise TrainError(f"{dataset.name}: the network of {owner} takes sounds, got {dataset.kind}s")
    dataset = dataset.in_columns(columns, f"the network of {owner}")
    _check_kind(dataset, shape, owner)
    sizes = sizes_of(config)
    if len(shape) == 3 and shape[1] == shape[2]:
        sizes["image_size"] = shape[1]
    elif len(shape) == 3 and config.trunk.startswith(FLAT_TRUNKS):
        _check_size(dataset, shape[1:], owner)
    return dataset, sizes


def tokens_of(about: dict[str, Any], owner: str, name: str, prompt: Role | None = None) -> Tokens:
    """Return the tokenizer in a checkpoint, for the texts of the data set `name`, with the prompt of what they are."""
    content = about.get("tokenizer")
    if not isinstance(content, str):
        raise TrainError(f"{name}: expected rows or images, because the network of {owner} does not embed texts")
    prompts = {} if prompt is None else prompts_of(about)
    text = prompts[prompt][0] if prompt in prompts else prompt_of(about)
    return Tokens(content, f"checkpoint of {owner}", text)


def prompt_tokens_of(about: dict[str, Any], prompt: Role | None) -> int | None:
    """Return how many tokens of the prompt of queries or documents are not pooled; None is as in the training."""
    prompts = {} if prompt is None else prompts_of(about)
    return prompts[prompt][1] if prompt in prompts else None


def _check_kind(dataset: Dataset, shape: tuple[int, ...], run: str) -> None:
    expected = "images" if len(shape) == 3 else f"rows of {shape[0]} columns"
    if dataset.kind == "sound" or (dataset.kind == "image") != (len(shape) == 3):
        raise TrainError(f"{dataset.name}: the network of {run} takes {expected}, got {dataset.kind}s")
    if len(shape) == 1 and len(dataset.read(0)) != shape[0]:
        raise TrainError(f"{dataset.name}: the network of {run} takes {expected}, got {len(dataset.read(0))} columns")


def _check_size(dataset: Dataset, size: tuple[int, ...], run: str) -> None:
    """Raise a TrainError for images whose size does not fit a network without convolutions, and cannot be changed."""
    other = sorted(sizes_in(dataset) - {size})
    if other:
        expected, got = (" x ".join(map(str, sides)) for sides in (size, other[0]))
        raise TrainError(f"{dataset.name}: the network of {run} takes images of {expected} pixels, got {got}")


def evaluate_run(
    run: Run | str | Path,
    *,
    which: str = "best",
    clustering: bool | str = True,
    ks: Sequence[int] = (),
    trust: str | Collection[str] = (),
) -> Result:
    """Score a run on its test classes, and write `scores.json` and `test.npz` into its folder.

    `test.npz` holds embeddings (n, d), labels (n,), classes, names, groups if the data have them, and the same for the
    gallery if there is one.

    Parameters
    ----------
    run : Run, str or Path
        The run or its folder.
    which : {"best", "last", "trained"}
        Checkpoint to use; "trained" is the best network that was trained, where something cheaper is kept as "best".
    clustering : bool or "plain"
        Also cluster the embeddings, for NMI and F1.
    ks : sequence of int
        Values of K for Recall@K and precision@K, in addition to 1. By default, those of the run.
    trust : str or collection of str
        Modules of your own that the settings of the run may name; their code is run.

    Returns
    -------
    Result
        The scores.

    Raises
    ------
    TrainError
        If there is no such run or checkpoint, the data cannot be found, or the folder is not writable.
    """
    folder, config = folder_and_config(run, trust)
    if not os.access(folder.path, os.W_OK):
        advice = f"make it writable, or use `nearfar evaluate {folder.path} DATA`, which writes nothing"
        raise TrainError(f"{folder.path}: is not writable, but scores of the test are stored there; {advice}")
    how: dict[str, Any] = {"ks": sorted({1, *ks}) if ks else config.ks, "seed": config.seed}
    task = _task(run, folder, config)
    embedder = _network(run, folder, config, which)
    about = read_about(folder.checkpoint(which))
    if config.text_trunk is not None:
        return _evaluate_pairs(folder, config, task, embedder, about, which, how)
    sets = {"": task.test}
    if task.gallery is not None:
        sets["gallery_"] = task.gallery
    metric = embedder.metric
    is_frozen = str(about.get("kept", "")).startswith("frozen")
    made_of = _made_of(embedder, sets, config)
    known = None if isinstance(metric, Whiten) else _saved_rows(folder, made_of, sets)
    embedded = known or _without_metric(embedder, sets, network_config(config, about), is_frozen=is_frozen)
    without = None
    if isinstance(metric, Whiten):
        without = _score(embedded, sets, **how)
        embedded = {prefix: whitened(metric, rows) for prefix, rows in embedded.items()}
    scores, found = _score_queries(embedded, sets, clustering=clustering, **how)
    raw = None
    if task.test.texts is None:
        seen = {prefix: raw_items(items, embedder.scale) for prefix, items in sets.items()}
        raw = _score(seen, sets, **how)
    if is_frozen:
        baselines = Baselines(raw=raw, without_metric=without, frozen=without or scores)
    else:
        frozen, why_not = _frozen_scores(sets, config, about, folder.start, how)
        baselines = Baselines(raw=raw, without_metric=without, frozen=frozen, why_not_frozen=why_not)
    split = " ".join(filter(None, (task.protocol, remark_shared(task))))
    protocol = " ".join(filter(None, (split, _chosen(config, task, about, which), whitening_note(about))))
    result = Result(
        scores=scores,
        raw=raw,
        protocol=protocol,
        remarks=_remarks_on_run(folder, config, task, about, embedder, embedded[""], scores, baselines),
        without_metric=without,
        standardized=isinstance(embedder.scale, Standardize),
        frozen=baselines.frozen,
        by_class=scores_by_class(found, task.test.labels, task.test.classes),
        kept=folder.kept_sentence if which == "best" else "",
    )
    _write_arrays(folder.path / "test.npz", embedded, sets, made_of)
    write_json(folder.path / "scores.json", _content(result, split, _checkpoint_note(about, which), config))
    return result


class Baselines(NamedTuple):
    """Scores with which those of a run are compared; `why_not_frozen` states why features have none."""

    raw: Scores | None
    without_metric: Scores | None
    frozen: Scores | None
    why_not_frozen: str = ""


def _remarks_on_run(
    folder: RunFolder,
    config: TrainConfig,
    task: Task,
    about: dict[str, Any],
    embedder: Embedder,
    rows: Floats,
    scores: Scores,
    baselines: Baselines,
) -> tuple[str, ...]:
    """Return remarks on the data, the training and the scores of the test embeddings, (n, d)."""
    units = "" if config.standardize else scale_warning(task.train)
    epochs = [] if units else _epochs(folder)  # standardized columns help more than more epochs
    on_training = remarks(
        rows,
        scores,
        epochs,
        folder.read_log(),
        config,
        raw=baselines.raw,
        frozen=baselines.frozen,
        steps=about["step"],
    )
    parameters = sum(parameter.numel() for parameter in embedder.trunk.parameters())
    found = (
        scores.why_unscored(),
        *_counts_of_relevance(task.test),
        random_trunk(config, first_weights(about), parameters),
        units,
        baselines.why_not_frozen,
        *on_training,
        _remark_on_metric(baselines.without_metric, about),
    )
    return tuple(sentence for sentence in found if sentence)


def _remark_on_metric(without: Scores | None, about: dict[str, Any]) -> str:
    """Return a remark on the scores without the whitening or closed form of a checkpoint; "" if it has none."""
    if without is None:
        return ""
    form = FORMS.get(str(about.get("form")))
    follows = "the whitening" if form is None else f"the closed form ({form.title})"
    before = f"Recall@1 {without.recall_at[1]:.4f}, MAP@R {without.map_at_r:.4f}"
    return f"The embeddings without {follows} that follows them: {before}."


def _without_metric(
    embedder: Embedder, sets: dict[str, Dataset], config: TrainConfig, *, is_frozen: bool
) -> dict[str, Floats]:
    """Embed sets without the metric that follows the network; those of a frozen trunk are features, in the cache."""
    sizes = sizes_of(config)
    if is_frozen:
        return {prefix: all_rows(cached_features(embedder, items, **sizes)) for prefix, items in sets.items()}
    metric = embedder.metric
    embedder.metric = torch.nn.Identity()
    try:
        return {prefix: embed(embedder, items, **sizes) for prefix, items in sets.items()}
    finally:
        embedder.metric = metric  # because a `Run` keeps its network


def _made_of(embedder: Embedder, sets: Mapping[str, Dataset], config: TrainConfig) -> str:
    """Return a digest of a network, of the items that it embeds and of how they are read; "" if readers are unknown.

    `test.npz` holds it beside the embeddings, which are not computed again as long as it is the same.
    """
    if not all(map(are_recognized, sets.values())):
        return ""
    items = [f"{prefix}{digest_of_items(dataset)}" for prefix, dataset in sorted(sets.items())]
    sizes = {name: value for name, value in sizes_of(config).items() if name != "workers"}
    parts = (digest_of_network(embedder), *items, str(sizes), DECODING, torch.__version__)
    return hashlib.sha256("-".join(parts).encode()).hexdigest()


def _saved_rows(folder: RunFolder, made_of: str, sets: Mapping[str, Dataset]) -> dict[str, Floats] | None:
    """Return the embeddings of sets in the `test.npz` of a run; None if they are missing, or made of something else."""
    try:
        with np.load(folder.path / "test.npz", allow_pickle=False) as arrays:
            if not made_of or str(arrays["made_of"]) != made_of:
                return None
            found: dict[str, Floats] = {prefix: arrays[f"{prefix}embeddings"] for prefix in sets}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    sound = all(rows.ndim == 2 and len(rows) == len(sets[prefix]) for prefix, rows in found.items())
    return found if sound else None


def saved_test(run: Path, embedder: Embedder, test: Dataset, gallery: Dataset | None) -> dict[str, Floats] | None:
    """Return the embeddings of the test of a run, and of its gallery ("gallery_"), that `evaluate_run` has stored.

    None if there are none, or if the network, the items or how they are read have changed since.
    """
    folder, config = folder_and_config(run)
    if config.text_trunk is not None:
        return None
    sets = {"": test} | ({} if gallery is None else {"gallery_": gallery})
    return _saved_rows(folder, _made_of(embedder, sets, config), sets)


def _counts_of_relevance(test: Dataset) -> list[str]:
    """Return what the scores by listed pairs and by labels in common count."""
    found = []
    if test.listed is not None:
        similar = np.count_nonzero(test.listed.degree > 0)
        dissimilar = np.count_nonzero(test.listed.degree == 0)
        if similar and dissimilar:
            found.append(f"Listed pairs of the test: {similar:,} similar and {dissimilar:,} dissimilar ones.")
    if test.has_label_sets:
        found.append(f'Scores without the words "{IN_COMMON}" count equal sets of labels only.')
    return found


def _frozen_scores(
    sets: dict[str, Dataset],
    config: TrainConfig,
    about: dict[str, Any],
    start: Path | None,
    how: dict[str, Any],
) -> tuple[Scores | None, str]:
    """Score the features of the trunk before its training; None, and a remark, if its weights are not there any more.

    A trunk that started from random weights gives None and no remark.
    """
    if not first_weights(about).startswith(PRETRAINED):
        return None, ""
    try:
        with preserve_random_state():
            features = {prefix: all_rows(frozen_features(items, config, start)) for prefix, items in sets.items()}
    except (ValueError, OSError, ImportError) as error:
        return None, f"The pretrained trunk without the training was not scored, because it cannot be loaded: {error}."
    return _score(features, sets, **how), ""


def _evaluate_pairs(
    folder: RunFolder,
    config: TrainConfig,
    task: Task,
    embedder: Embedder,
    about: dict[str, Any],
    which: str,
    how: dict[str, Any],
) -> Result:
    """Score a run on pairs: texts of the test search its images, and images search its texts.

    In `test.npz` the texts are the queries and the images the gallery.
    """
    texts = text_set(task.test, tokens_of(about, str(folder.path), task.test.name))
    images = images_once(task.test)
    embedded = {"": embed_texts(embedder, texts), "gallery_": embed(embedder, images, **sizes_of(config))}
    both = scores_both_ways(embedded["gallery_"], images.labels, embedded[""], texts.labels, clustering=False, **how)
    protocol = f"{task.protocol} {_chosen(config, task, about, which)}"
    parameters = sum(parameter.numel() for parameter in embedder.trunk.parameters())
    remarks = (
        both[0].why_unscored(),
        random_trunk(config, first_weights(about), parameters),
        course(_epochs(folder), config),
    )
    result = Result(
        scores=both[0],
        raw=None,
        protocol=protocol,
        remarks=tuple(remark for remark in remarks if remark),
        images_to_texts=both[1],
    )
    _write_arrays(folder.path / "test.npz", embedded, {"": texts, "gallery_": images})
    write_json(folder.path / "scores.json", _content(result, task.protocol, _checkpoint_note(about, which), config))
    return result


def _checkpoint_note(about: dict[str, Any], which: str) -> dict[str, Any]:
    """Return the entry of `scores.json` on the checkpoint that was scored."""
    return {"which": which, "epoch": about["epoch"], "step": about["step"], "validation": about["best"]}


def _content(result: Result, split: str, checkpoint: dict[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Return the content of `scores.json`."""
    without = result.without_metric
    return {
        "protocol": result.protocol,
        "split": split,
        "scores": result.scores.to_dict(),
        **({} if result.raw is None else {"raw": result.raw.to_dict(), "standardized": result.standardized}),
        "remarks": list(result.remarks),
        "checkpoint": checkpoint,
        "config": config.digest,
        **({} if without is None else {"without_metric": without.to_dict()}),
        **({} if result.images_to_texts is None else {"images_to_texts": result.images_to_texts.to_dict()}),
        **({} if result.frozen is None else {"frozen": result.frozen.to_dict()}),
        **({"classes": dict(result.by_class)} if result.by_class else {}),
    }


def _epochs(folder: RunFolder) -> list[dict[str, float | None]]:
    """Return the table of epochs; an empty one if it is damaged, because scores do not need it."""
    try:
        return folder.read_metrics()
    except TrainError:
        return []


def refuse_final(folder: Path, config: TrainConfig) -> None:
    """Raise a TrainError if a final model is to be scored on its own data."""
    if config.final is not None:
        raise TrainError(
            f"{folder}: is a final model, which was trained on all classes of its data, so none is left for a test; "
            f"see the scores of {config.final}, or score it on other data with `nearfar evaluate {folder} DATA`"
        )


def task_of(run: Run | str | Path) -> Task:
    """Return the data of a run, or open them; relative paths also refer to the folder in which the run was started.

    The protocol notes if the data have changed: the drawn test classes may then have been seen in training.
    """
    return _task(run, *folder_and_config(run))


def _task(run: Run | str | Path, folder: RunFolder, config: TrainConfig) -> Task:
    refuse_final(folder.path, config)
    if isinstance(run, Run) and run.task is not None:
        return run.task
    about: dict[str, Any] = read_about(folder.best) if folder.best.is_file() else {}
    tokens = tokens_of(about, str(folder.path), config.data) if "tokenizer" in about else None
    task = open_data(config, folder.start, tokens)
    learned = about.get("classes")
    if learned in (None, class_mark(task)):
        return task
    changed = "NOT the data of the training: the training classes have changed, and may be in this test."
    return replace(task, protocol=f"{task.protocol} {changed}")


def _score(rows: dict[str, Floats], sets: dict[str, Dataset], **how: Any) -> Scores:
    """Score the rows of the test items and of the gallery, by the prefixes of their arrays in `test.npz`."""
    return _score_queries(rows, sets, clustering=False, **how)[0]


def _score_queries(rows: dict[str, Floats], sets: dict[str, Dataset], **how: Any) -> tuple[Scores, Retrieval]:
    """Return the scores of the rows, and those of each query; `how` are arguments of `evaluate`."""
    how["groups"] = sets[""].groups
    searched = None
    if "gallery_" in sets:
        gallery = sets["gallery_"]
        how |= {"gallery": rows["gallery_"], "gallery_labels": gallery.labels, "gallery_groups": gallery.groups}
        searched = Searched(gallery, rows["gallery_"])
    scores, found = evaluate_queries(rows[""], sets[""].labels, **how)
    return with_relevance(scores, sets[""], rows[""], searched), found


def _write_arrays(path: Path, embedded: dict[str, Floats], sets: dict[str, Dataset], made_of: str = "") -> None:
    arrays: dict[str, Any] = {"made_of": np.array(made_of)}
    for prefix, items in sets.items():
        arrays |= {f"{prefix}embeddings": embedded[prefix], f"{prefix}labels": items.labels}
        texts: dict[str, Any] = {"classes": items.classes, "names": items.names}
        if items.groups is not None:
            texts["groups"] = items.groups
        arrays |= {f"{prefix}{name}": narrow_texts(each, name) for name, each in texts.items()}
        arrays |= {f"{prefix}{name}": each for name, each in arrays_of_class_labels(items).items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    replace_file(path, buffer.getvalue())


def are_reduced(dataset: Dataset) -> bool:
    """Return whether items are images whose pixels are compared after they are reduced."""
    return dataset.kind == "image" and (
        dataset.array is None or math.prod(dataset.array.shape[1:3]) > MAX_BASELINE_PIXELS
    )


def raw_items(dataset: Dataset, scale: torch.nn.Module) -> Floats:
    """Return the raw inputs as rows: pixels (large images are reduced to 32x32), rows, or statistics of sounds.

    Rows are standardized if the network standardizes them, so that this effect is not taken for learning.
    """
    if dataset.kind == "sound":
        return embed_sounds_as_they_are(dataset)
    if dataset.kind == "row":
        rows = all_rows(dataset)
    elif dataset.array is not None and not are_reduced(dataset):
        rows = dataset.array.reshape(len(dataset), -1)
    else:
        places = counted(range(len(dataset)), "reading", len(dataset))
        rows = np.stack([read_square(dataset.read, i, RAW_SIDE).ravel() for i in places])
    rows = rows.astype(np.float32)
    if not isinstance(scale, Standardize):
        return rows
    with torch.inference_mode():
        scaled: Floats = scale(torch.from_numpy(rows).to(scale.mean.device)).cpu().numpy()
    return scaled


def embed_sounds_as_they_are(dataset: Dataset) -> Floats:
    """Return mean and standard deviation over time of the log-mel spectrogram of sounds that are in pieces."""
    read, _ = unwrapped(dataset.read, 0)
    assert isinstance(read, PieceReader)
    return encode(LogMel(read.length), dataset)


def _chosen(config: TrainConfig, task: Task, about: dict[str, Any], which: str) -> str:
    if which == "last":
        return f"The last checkpoint, of epoch {about['epoch']}, is scored."
    kept = about.get("kept_title")
    held_out = "validation classes"
    if task.validation is not None and not set(task.train.classes).isdisjoint(task.validation.classes):
        held_out = "validation items"
    if about["step"] == 0:
        unchanged = f"Nothing was trained: the model is {kept}."
        if config.preprocessing is not None and FROM_HEADER in config.preprocessing.source:
            unchanged += f" Images are prepared as in {config.preprocessing.source}."
        return unchanged
    if about.get("unchecked"):
        return f"The model is {kept}, which was not compared with the trained network."
    if kept:
        return f"The model is {kept}, which the {held_out} prefer to the trained network."
    if config.protocol == "paper":
        learned = "the network was trained on all training classes"
        return f"Protocol of the paper: {learned}, and the last checkpoint, of epoch {about['epoch']}, is scored."
    if about["best"] is None:
        why = f"There are no {held_out}"
        if task.validation is not None:  # each has one item, so there is nothing to find
            why = f"The {held_out} could not be scored"
        last = f"the checkpoint is that of the last evaluated epoch, {about['epoch']}"
        return f"{why}: {last}, and was not compared with anything cheaper."
    name = {"recall_at_1": "Recall@1", "map_at_r": "MAP@R"}[config.select]
    chosen = f"chosen by {name} on the {held_out} ({about['best']:.4f})"
    again = f" Then the network was trained again, also on these {held_out.split()[1]}." if about.get("again") else ""
    return f"The checkpoint of epoch {about['epoch']} was {chosen} (honest protocol).{again}"
