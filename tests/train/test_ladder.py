"""The ladder: what raw items, frozen features, a closed form, a head and training are worth, on classes held out."""

import html
import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image
from safetensors.torch import save_file
from scipy.stats import t

import nearfar
from nearfar.data import open_task
from nearfar.deep.networks.trunks import make_trunk
from nearfar.evaluation import evaluate
from nearfar.report import report_run
from nearfar.train import TrainConfig, TrainError, embed_run, evaluate_run, ladder, train
from nearfar.train.checkpoint import read_about
from nearfar.train.rungs import climbing, rung_settings
from nearfar.train.rungs import ladder as comparing
from nearfar.train.rungs.by_default import default_ladder
from nearfar.train.rungs.climbing import RungProgress, climb
from nearfar.train.rungs.closed_forms import choose_form, fitted
from nearfar.train.rungs.frozen import frozen_features
from nearfar.train.rungs.ladder import _protocol, affordable_splits, held_out_classes, with_forms
from nearfar.train.rungs.last_stage import split_off
from nearfar.train.rungs.rung_settings import config_for, on_all_classes, plan_of_ladder, whole_config
from nearfar.train.rungs.split_training import trained_embeddings
from nearfar.train.rungs.table import Ladder, Rung, last_worthwhile_rung, mean_and_half
from nearfar.train.rungs.untrained import save_untrained
from nearfar.train.settle import settle
from nearfar.train.timing.expected_work import ExpectedWork
from nearfar.train.timing.time_limit import TimeLimit
from tests.commands import run

CLASSES = 12


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Small pictures of twelve classes: a color and a stripe each, under light that varies."""
    folder = tmp_path_factory.mktemp("photos") / "photos"
    rng = np.random.default_rng(0)
    for c in range(CLASSES):
        color = rng.integers(60, 200, 3)
        (folder / f"class{c:02d}").mkdir(parents=True)
        for i in range(8):
            pixels = np.full((20, 20, 3), color) + rng.normal(scale=25, size=(20, 20, 3)) + rng.normal(scale=30)
            pixels[:, c : c + 3] = 255 - color
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"class{c:02d}" / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def config(photos):
    return TrainConfig.of(
        data=str(photos),
        trunk="conv4(width=8)",
        embedding_dim=8,
        batch_size=24,
        epochs=1,
        device="cpu",
        image_size=20,
    )


@pytest.fixture(autouse=True, scope="module")
def _few_steps(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEARFAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        for module in (comparing, rung_settings):
            patch.setattr(module, "HEAD_STEPS", 8)
            patch.setattr(module, "STAGE_STEPS", 2)
        patch.setattr(rung_settings, "TRIED_BATCHES", 2)
        patch.setattr(rung_settings, "TRIED_OF_MORE", 3)
        patch.setattr(rung_settings, "FINAL_BATCHES", 3)
        yield


@pytest.fixture(scope="module")
def found(config):
    return ladder(config, splits=2)


@pytest.fixture(scope="module")
def large_photos(tmp_path_factory):
    """Photos of fourteen classes, large enough to be taken for photographs."""
    folder = tmp_path_factory.mktemp("large") / "photos"
    rng = np.random.default_rng(0)
    for c in range(14):
        color = rng.integers(60, 200, 3)
        (folder / f"class{c:02d}").mkdir(parents=True)
        for i in range(4):
            pixels = np.full((64, 64, 3), color) + rng.normal(scale=25, size=(64, 64, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"class{c:02d}" / f"{i}.png")
    return folder


@pytest.fixture
def weights(timm, tmp_path):
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


TITLES = {
    "raw": "raw pixels",
    "frozen": "frozen features",
    "whitened": "frozen features, whitened",
    "head": "linear layer on frozen features",
    "full": "all weights trained for 2 batches",
}


def rung(name, *scores):
    return Rung(name, TITLES[name], scores, scores, 1.0)


@pytest.mark.slow
def test_every_rung_is_scored_on_classes_held_out(config, found):
    assert [row.name for row in found.rows] == ["raw", "whitened"]
    assert [len(row.map_at_r) for row in found.rows] == [20, 20]
    assert all(np.isfinite([*row.map_at_r, *row.recall_at_1]).all() for row in found.rows)
    assert all(row.seconds > 0 for row in found.rows)
    train_items = open_task(config.data, validation=0.0, seed=config.seed).train
    raw = train_items.subset(np.arange(len(train_items)))
    pixels = np.stack([raw.read(i).ravel() for i in range(len(raw))]).astype(np.float32)
    for split, classes in enumerate(held_out_classes(train_items, 20, config.seed)):
        out = np.isin(train_items.labels, classes)
        expected = evaluate(pixels[out], train_items.labels[out], clustering=False)
        assert_allclose(found.rows[0].map_at_r[split], expected.map_at_r, rtol=1e-6)
        form = choose_form(pixels[~out], train_items.labels[~out], seed=config.seed, splits=2).name
        mapped = fitted(form, pixels[~out], train_items.labels[~out])(pixels[out]).astype(np.float32)
        expected = evaluate(mapped, train_items.labels[out], clustering=False)
        assert found.rows[1].forms[split] == form
        assert_allclose(found.rows[1].map_at_r[split], expected.map_at_r, rtol=1e-6)
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # the global generator is what is tested
    again = ladder(config, splits=2)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002  # the global generator is what is tested
    assert [row.map_at_r for row in again.rows] == [row.map_at_r for row in found.rows]


@pytest.mark.slow
def test_the_table_is_text_and_plain_data(found):
    text = str(found)
    for word in (
        "raw pixels",
        "raw pixels, ",
        "Recall@1",
        "MAP@R",
        "seconds",
        "Worth it: ",
        "held-out classes",
    ):
        assert word in text
    told = json.loads(json.dumps(found.to_dict()))
    assert told["worth"] == found.worth
    assert told["sentence"] in text
    assert_allclose(told["rows"][1]["map_at_r_mean"], np.mean(found.rows[1].map_at_r))


def test_the_mean_of_a_rung_with_fewer_splits_is_comparable_with_the_others():
    pixels = rung("raw", 0.2, 0.3, 0.7, 0.8)
    found = Ladder("", (pixels, rung("frozen", 0.3, 0.4, 0.8, 0.9), rung("head", 0.4, 0.5)), "frozen", ratio=0.5)
    rows = found.to_dict()["rows"]
    assert_allclose([row["map_at_r_mean"] for row in rows], [0.5, 0.6, 0.7])  # pixels plus 0.2 on two splits
    assert [row["splits"] for row in rows] == [4, 4, 2]
    assert "linear layer on frozen features 0.700" in found.sentence
    assert "The higher scores of other rungs may be due to chance." in found.sentence


def test_the_mean_of_a_rung_with_fewer_splits_follows_the_whitened_features():
    whitened = rung("whitened", 0.6, 0.7, 0.9, 1.0)  # raw pixels vary in another way
    found = Ladder("", (rung("raw", 0.1, 0.9, 0.1, 0.1), whitened, rung("head", 0.5, 0.6)), "whitened", ratio=0.5)
    assert_allclose([row["map_at_r_mean"] for row in found.to_dict()["rows"]], [0.3, 0.8, 0.7])  # 0.8 - 0.1


def test_intervals_are_corrected_for_overlapping_splits():
    values = [0.1, 0.25, 0.2, 0.4]
    mean, half = mean_and_half(values, ratio=0.5)
    assert mean == pytest.approx(np.mean(values))
    assert half == pytest.approx(t.ppf(0.975, 3) * np.std(values, ddof=1) * (1 / 4 + 1 / 2) ** 0.5)
    assert np.isnan(mean_and_half([0.1], ratio=0.5)[1])


def test_fewer_than_five_splits_give_no_interval():
    pixels = rung("raw", 0.1, 0.2, 0.4, 0.5, 0.6)
    found = Ladder("", (pixels, rung("head", 0.6, 0.9, 1.0)), "head", ratio=0.5)
    many, few = found.to_dict()["rows"]
    half = mean_and_half(pixels.map_at_r, ratio=0.5)[1]
    assert many["map_at_r_half_width"] == pytest.approx(half)
    assert np.isnan(few["map_at_r_half_width"])
    assert np.isnan(few["recall_at_1_half_width"])
    lines = str(found).splitlines()
    assert f"0.360 ± {half:.3f}" in next(line for line in lines if line.startswith("raw pixels"))
    assert "±" not in next(line for line in lines if line.startswith("linear layer"))


def test_the_protocol_says_which_rungs_have_no_interval(photos):
    items = open_task(str(photos), validation=0.0).train

    def told(*splits):
        rungs = [rung(name, *[0.5] * n) for name, n in zip(("raw", "head"), splits, strict=True)]
        return _protocol(items, items, rungs, 2)  # the number of held-out classes

    corrected = "mean and 95% interval, corrected for overlapping splits"
    assert told(20, 5).endswith(f"20 splits (the first 5 for rungs that train), each holds 2 classes out; {corrected}.")
    assert told(20, 3).endswith(f"{corrected}. 3 splits are too few for an interval.")
    assert told(3, 3).endswith("; 3 splits, each holds 2 classes out; mean. 3 splits are too few for an interval.")
    assert told(1, 1).endswith("; one split, which holds 2 classes out.")
    assert told(20, 1).endswith(f"(the first one for rungs that train), each holds 2 classes out; {corrected}.")


def test_a_gain_that_may_not_hold_on_new_classes_is_told():
    rungs = (rung("raw", 0.1, 0.2, 0.3), rung("frozen", 0.21, 0.33, 0.44))  # gains: 0.11, 0.13, 0.14
    assert "may be as good" not in Ladder("", rungs, "frozen", ratio=0.5).sentence
    rungs = (rungs[0], rung("frozen", 0.2, 0.34, 0.5))  # gains: 0.1, 0.14, 0.2
    assert last_worthwhile_rung(rungs) == "frozen"
    told = Ladder("", rungs, "frozen", ratio=0.5).sentence
    assert "On new classes, raw pixels may be as good: " in told
    assert told.endswith(": the gain is 0.147 on average, and 0.100 to 0.200 in single splits.")
    plain = (0.1, 0.2, 0.3, 0.1, 0.2)
    rungs = (rung("raw", *plain), rung("frozen", *np.add(plain, (0.02, 0.12, 0.14, 0.1, 0.2))))
    told = Ladder("", rungs, "frozen", ratio=0.5).sentence
    assert told.endswith("On new classes, raw pixels may be as good: the gain is 0.116 ± 0.152.")


def test_many_splits_find_a_gain_that_few_do_not():
    gains = np.resize([0.1, -0.04, 0.03, 0.06, 0.02], 20)
    plain = np.random.default_rng(1).uniform(0.4, 0.9, size=20)
    assert last_worthwhile_rung([rung("raw", *plain[:3]), rung("frozen", *(plain + gains)[:3])]) == "raw"
    assert last_worthwhile_rung([rung("raw", *plain), rung("frozen", *(plain + gains))]) == "frozen"


def test_a_rung_that_trains_must_be_better_by_more_than_one_that_does_not():
    frozen = rung("frozen", *[0.5] * 5)
    better = (0.6, 0.48, 0.55, 0.49, 0.56)  # by 0.036, with a standard error of 0.023
    assert last_worthwhile_rung([frozen, rung("whitened", *better)]) == "whitened"
    assert last_worthwhile_rung([frozen, rung("head", *better)]) == "frozen"


def test_all_weights_must_be_better_by_a_standard_error():
    frozen = rung("frozen", *[0.5] * 5)
    uneven = (0.54, 0.57, 0.58, 0.71, 0.54)  # by 0.088; the half-width of the interval is 0.087, the error 0.031
    assert last_worthwhile_rung([frozen, rung("full", *np.subtract(uneven, 0.05))]) == "full"
    assert last_worthwhile_rung([frozen, rung("head", *np.subtract(uneven, 0.05))]) == "frozen"
    assert last_worthwhile_rung([frozen, rung("full", *np.subtract(uneven, 0.06))]) == "frozen"
    assert last_worthwhile_rung([rung("frozen", 0.5), rung("full", 0.51)]) == "full"


def test_splits_are_fewer_for_many_items_of_many_features():
    assert affordable_splits(20, n=160, widths=[3072, 1280]) == 20
    assert affordable_splits(20, n=3000, widths=[384]) == 20
    assert 1 < affordable_splits(20, n=3000, widths=[3072, 2048]) < affordable_splits(20, n=3000, widths=[3072, 1280])
    assert affordable_splits(20, n=3000, widths=[3072, 8192]) == 20  # too wide for closed forms


def test_classes_held_out_are_a_third_drawn_anew(photos):
    items = open_task(str(photos), validation=0.0).train
    held = held_out_classes(items, 5, 0)
    assert all(len(classes) == max(2, round(len(items.classes) / 3)) for classes in held)
    assert len({tuple(classes) for classes in held}) > 1


def test_the_table_says_where_no_rung_is_better_than_pixels():
    rungs = (rung("raw", 0.1, 0.5), rung("frozen", 0.2, 0.3))  # better here, worse there
    told = Ladder("", rungs, last_worthwhile_rung(rungs)).sentence
    assert told.startswith("No rung is better than raw pixels by more than chance: MAP@R 0.300 on held-out classes (")
    rungs = (rung("raw", 0.1, 0.1), rung("frozen", 0.3, 0.3))
    assert Ladder("", rungs, last_worthwhile_rung(rungs)).sentence.startswith("Frozen features: MAP@R 0.300")
    rungs = (*rungs, rung("whitened", 0.2, 0.2))  # the title of this rung has a comma
    told = Ladder("", rungs, last_worthwhile_rung(rungs)).sentence
    assert told.endswith("(raw pixels 0.100; frozen features, whitened 0.200).")


def test_the_table_says_where_a_higher_score_may_be_due_to_chance():
    rungs = (rung("raw", 0.3, 0.3, 0.3), rung("frozen", 0.2, 0.3, 0.6))
    told = Ladder("", rungs, last_worthwhile_rung(rungs)).sentence
    assert told.startswith("No rung is better than raw pixels by more than chance")
    assert told.endswith("(frozen features 0.367). The higher scores of other rungs may be due to chance.")
    rungs = (rung("raw", 0.1, 0.1), rung("frozen", 0.3, 0.3))
    assert "due to chance" not in Ladder("", rungs, last_worthwhile_rung(rungs)).sentence


def test_a_rung_is_worth_it_where_it_is_better_by_more_than_chance():
    rungs = [rung("raw", 0.1, 0.2, 0.15), rung("frozen", 0.3, 0.41, 0.36)]
    assert last_worthwhile_rung(rungs) == "frozen"
    assert last_worthwhile_rung([*rungs, rung("whitened", 0.35, 0.46, 0.41)]) == "whitened"
    assert last_worthwhile_rung([*rungs, rung("whitened", 0.4, 0.29, 0.36)]) == "whitened"  # which other classes prefer
    assert last_worthwhile_rung([*rungs, rung("whitened", 0.25, 0.36, 0.35)]) == "frozen"
    # worse by more than a standard error, but not by one that allows for the overlap of the splits
    assert last_worthwhile_rung([*rungs, rung("whitened", 0.25, 0.415, 0.34)]) == "whitened"
    assert last_worthwhile_rung([*rungs, rung("whitened", 0.2, 0.3, 0.2), rung("head", 0.4, 0.51, 0.47)]) == "head"
    assert last_worthwhile_rung([rung("raw", 0.1), rung("frozen", 0.2)]) == "frozen"


@pytest.mark.slow
def test_all_weights_are_trained_where_that_is_asked_for(config):
    found = ladder(config, splits=1, full=True)
    assert [row.name for row in found.rows] == ["raw", "whitened", "full"]


@pytest.mark.slow
def test_a_frozen_run_is_the_trunk_with_its_closed_form(config, tmp_path):
    made = save_untrained(config_for("whitened", config), tmp_path / "run", kind="frozen", form="whitening")
    result = evaluate_run(made, clustering=False)
    assert "Nothing was trained: the model is frozen features, whitened." in result.protocol
    with pytest.raises(TrainError, match="nothing to resume, because its network is not trained"):
        train(None, made.folder, resume=True)
    plain = save_untrained(config_for("frozen", config), tmp_path / "plain", kind="frozen", form="none")
    task = open_task(config.data, validation=config.validation, seed=config.seed)
    learned = task.train.joined(task.validation)  # nothing is trained, so that nothing has to be held out
    rows = {name: embed_run(plain, part) for name, part in {"train": learned, "test": task.test}.items()}
    learner = nearfar.DiscriminantWhitening(normalize=True).fit(rows["train"].astype(np.float64), learned.labels)
    expected = learner.transform(rows["test"].astype(np.float64))
    assert_allclose(embed_run(made, task.test), expected, atol=2e-3 * np.abs(expected).max())
    assert_allclose(embed_run(plain, task.test, layer="pooled"), rows["test"], atol=1e-5)
    assert made.config.embedding_dim == plain.config.embedding_dim == expected.shape[1]


@pytest.fixture
def table(tmp_path):
    """Rows of twenty classes, which differ in the first half of the columns; the other half is larger noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 8)
    X = rng.normal(size=(20, 10))[y] + 0.4 * rng.normal(size=(160, 10))
    X[:, 5:] = 4 * rng.normal(size=(160, 5))
    np.savez(tmp_path / "rows.npz", X=X.astype(np.float32), y=y)
    return str(tmp_path / "rows.npz")


@pytest.mark.parametrize("standardize", [False, True])
def test_rows_climb_from_raw_rows_to_a_linear_layer(table, standardize):
    config = TrainConfig.of(
        data=table, device="cpu", batch_size=16, standardize=standardize, test_classes=[f"{c}" for c in range(6)]
    )
    found = ladder(config, splits=2, untrained_splits=4)
    raw, formed, head = found.rows
    assert [raw.title, head.title] == ["raw rows", "linear layer on raw rows"]
    assert formed.title == with_forms("raw rows", formed.forms)
    assert np.mean(formed.map_at_r) > np.mean(raw.map_at_r) + 0.05
    assert "rows of 14 training classes" in found.protocol
    assert "raw rows" in found.sentence
    config = config.replace(embedding_dim=4, steps=2)
    linear = train(config_for("head", config), f"{table}.run", progress=False)
    assert linear.config.trunk == "identity"


def test_the_closed_form_of_rows_without_a_pretrained_trunk_follows_the_rows(table, tmp_path):
    config = TrainConfig.of(data=table, device="cpu")
    made = save_untrained(config_for("whitened", config), tmp_path / "run")
    assert evaluate_run(made, clustering=False).scores.map_at_r > 0
    about = read_about(made.folder / "best.safetensors")
    assert about["kept_title"] == with_forms("raw rows", [about["form"]])
    assert about["form"] != "none"


def test_forms_are_named_by_how_often_they_were_chosen():
    assert with_forms("raw rows", ["whitening"]) == "raw rows, whitened"
    found = with_forms("frozen features", ["none", "gmml-0.3", "whitening", "gmml-0.3", "gmml-0.3", "whitening"])
    assert found == "frozen features, GMML(t=0.3) or whitened or as they are"


def test_a_folder_that_is_taken_is_refused(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(TrainError, match="not empty"):
        save_untrained(config_for("frozen", config), tmp_path / "run")
    assert (tmp_path / "run" / "mine.txt").read_text() == "mine"


def test_a_set_of_too_few_classes_is_refused(config):
    few = [f"class{c:02d}" for c in range(CLASSES - 4)]
    with pytest.raises(TrainError, match="ladder: expected at least 6 training classes, got 4"):
        ladder(config.replace(test_classes=few))
    with pytest.raises(TrainError, match="splits must be at least 1"):
        ladder(config, splits=0)


@pytest.mark.slow
def test_the_command_begins_with_the_table_and_goes_on(photos, tmp_path, capsys, monkeypatch):
    words = ["train", photos, "--trunk", "conv4(width=8)", "--image-size", 20, "--epochs", 1, "--batch-size", 24]
    words += ["--embedding-dim", 8, "--ladder", "yes", "--rung", "whitened", "--out", tmp_path / "run"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert out.startswith("Weights: random (conv4(width=8), ")
    assert "Weights: " not in err
    assert "Worth it: " in out
    assert "Nothing was trained" in out
    told = json.loads((tmp_path / "run" / "ladder.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["raw", "whitened"]
    page = report_run(tmp_path / "run").read_text()
    assert "What each rung is worth" in page
    assert told["sentence"].split(":")[0] in page


def test_frozen_features_without_the_table_begin_with_their_weights(photos, tmp_path, capsys, monkeypatch):
    words = ["train", photos, "--trunk", "conv4(width=8)", "--image-size", 20, "--rung", "frozen"]
    code, _, err = run(capsys, monkeypatch, *words, "--out", tmp_path / "run")
    assert code == 0, err
    assert "Weights: random (conv4(width=8), " in err
    code, _, err = run(capsys, monkeypatch, *words, "--quiet", "--out", tmp_path / "quiet")
    assert (code, err) == (0, "")


def test_frozen_features_need_no_second_photo_of_a_class(photos, tmp_path):
    table = photos.parent / "first.csv"
    first = sorted(photos.glob("*/0.png"))
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in first))
    config = TrainConfig.of(data=str(table), trunk="conv4(width=8)", image_size=20, device="cpu")
    for kind in ("frozen", "raw"):
        made = save_untrained(config_for("whitened", config), tmp_path / kind, kind=kind)
        assert np.isfinite(embed_run(made, str(table))).all()
    with pytest.raises(TrainError, match="no training class of first has two images, so no rung can be scored"):
        ladder(config)
    with pytest.raises(TrainError, match="no training class has two items, which SupConLoss needs"):
        train(config, tmp_path / "trained", progress=False)


def test_classes_of_one_item_are_refused_before_any_rung(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "lone.npz", X=rows, y=np.arange(60) - (np.arange(60) % 20 == 1))  # the last class has four rows
    config = TrainConfig.of(data=str(tmp_path / "lone.npz"), device="cpu")
    begun: list[str] = []
    with pytest.raises(TrainError, match=r"ladder: only \d of \d\d training classes of lone have two rows, too few to"):
        ladder(config, on_rung=begun.append)
    assert not begun


@pytest.mark.slow
def test_a_rung_can_be_chosen_without_the_table(photos, tmp_path, capsys, monkeypatch):
    words = ["train", photos, "--trunk", "conv4(width=8)", "--image-size", 20, "--epochs", 1, "--batch-size", 24]
    code, _, err = run(capsys, monkeypatch, *words, "--rung", "head", "--quiet", "--out", tmp_path / "run")
    assert code == 0, err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trunk"] == "identity"
    assert not (tmp_path / "run" / "ladder.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rung", "auto"], "--rung auto: takes the rung that the table recommends"),
        (["--ladder", "yes", "--devices", "2"], "--ladder: runs on one device"),
        (["--rung", "head", "--resume"], "--rung: works only at the start of a run"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(words, said, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    code, _, err = run(capsys, monkeypatch, "train", photos, "--out", tmp_path / "run", *words)
    assert code == 2
    assert said in err
    assert not (tmp_path / "run").exists()


def test_training_alone_writes_no_table(config, tmp_path):
    train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "ladder.json").exists()


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet(pad_type='same')", "test_convnext"])
def test_the_last_stage_alone_gives_the_features_and_gradients_of_the_whole(timm, name):
    torch.manual_seed(0)
    trunk = make_trunk(f"timm:{name}", (3, 160, 160)).eval()
    stage = split_off(trunk, (3, 160, 160), 10)
    images = torch.rand(3, 3, 160, 160)
    kept = stage.before(images)
    assert not kept.requires_grad
    chosen = [parameter for parameter in trunk.parameters() if parameter.requires_grad]
    assert 0 < len(chosen) < len(list(trunk.parameters()))
    torch.testing.assert_close(stage(kept), trunk(images), rtol=1e-4, atol=1e-5)
    expected = torch.autograd.grad(trunk(images).square().sum(), chosen)
    found = torch.autograd.grad(stage(kept).square().sum(), chosen)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(other.abs().max())))
    assert split_off(trunk, (3, 160, 160), 10**9) is None  # more than is kept
    assert split_off(make_trunk("conv4(width=4)", (1, 16, 16)).eval(), (1, 16, 16), 4) is not None


def test_photographs_with_a_pretrained_trunk_begin_with_the_table(large_photos, weights, tmp_path, capsys, monkeypatch):
    words = ["train", large_photos, "--trunk", "timm:test_resnet", "--pretrained", weights, "--batch-size", 8]
    words += ["--set", "steps=2", "--set", "device=cpu", "--set", "validation=0"]
    code, out, err = run(capsys, monkeypatch, *words, "--out", tmp_path / "run")
    assert code == 0, err
    told = json.loads((tmp_path / "run" / "ladder.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["raw", "frozen", "whitened", "head", "full"]
    assert told["rows"][-1]["title"] == "all weights trained for 2 batches"
    assert told["rows"][2]["title"].startswith("frozen features, ")
    assert (
        [len(row["map_at_r"]) for row in told["rows"]] == [row["splits"] for row in told["rows"]] == [20] * 3 + [5] * 2
    )
    assert told["worth"] == "frozen"  # nothing is trained, so that nothing continues
    assert "Continuing with" not in out
    result = out.partition("Worth it: ")[2]
    kept = json.loads((tmp_path / "run" / "choice.json").read_text())["sentence"]
    assert result.splitlines()[2] == kept
    mean = told["rows"][1]["map_at_r_mean"]
    assert kept.startswith(f"Kept: frozen features, MAP@R {mean:.3f} on held-out classes (raw pixels ")
    frozen = told["rows"][1]
    embedder_rows = embed_run(
        save_untrained(
            TrainConfig.of(
                data=str(large_photos),
                trunk="timm:test_resnet",
                pretrained=weights,
                freeze_trunk=True,
                device="cpu",
                validation=0.0,
            ),
            tmp_path / "frozen",
            form="none",
        ),
        open_task(str(large_photos), validation=0.0).train,
    )
    items = open_task(str(large_photos), validation=0.0).train
    for split, classes in enumerate(held_out_classes(items, 20, 0)):
        held = np.isin(items.labels, classes)
        expected = evaluate(embedder_rows[held], items.labels[held], clustering=False).map_at_r
        assert frozen["map_at_r"][split] == pytest.approx(expected, abs=1e-3)
    for number, more in enumerate((["--ladder", "no"], ["--rung", "last-stage"], ["--recipe", "photos/finetune"])):
        code, _, err = run(capsys, monkeypatch, *words, *more, "--quiet", "--out", tmp_path / str(number))
        assert code == 0, err
        assert not (tmp_path / str(number) / "ladder.json").exists()
    assert json.loads((tmp_path / "1" / "config.json").read_text())["last_stage"]


def test_a_training_that_skips_the_table_says_why(large_photos, weights, tmp_path, capsys, monkeypatch):
    few = [word for c in range(9) for word in ("--test-class", f"class{c:02d}")]
    words = ["train", large_photos, *few, "--trunk", "timm:test_resnet", "--pretrained", weights, "--batch-size", 8]
    words += ["--set", "steps=2", "--set", "device=cpu", "--set", "validation=0"]
    code, out, err = run(capsys, monkeypatch, *words, "--out", tmp_path / "run")
    assert code == 0, err
    assert "Worth it" not in out
    said = "are not compared before the training: this needs 6 training classes, to hold some out, and there are 5."
    assert said in err
    for number, more in enumerate((["--quiet"], ["--ladder", "no"], ["--recipe", "photos/finetune"])):
        code, _, err = run(capsys, monkeypatch, *words, *more, "--out", tmp_path / str(number))
        assert code == 0, err
        assert "are not compared" not in err


def test_an_estimate_of_the_time_mentions_the_table(large_photos, weights, capsys, monkeypatch):
    words = ["inspect", large_photos, "--time", "--set", "trunk=timm:test_resnet", "--set", f"pretrained={weights}"]
    words += ["--set", "steps=2", "--set", "batch_size=8", "--set", "device=cpu", "--set", "validation=0"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert "Training takes a few seconds" in out
    assert "`nearfar train` compares cheaper rungs for a minute or two (--ladder no skips them)" in out
    code, out, err = run(capsys, monkeypatch, *words, "--recipe", "photos/finetune")
    assert code == 0, err
    assert "--ladder" not in out


@pytest.mark.parametrize(("last_stage", "last"), [(False, "full"), (True, "last-stage")])
def test_the_table_of_a_pretrained_trunk_is_the_same_again(last_stage, last, large_photos, weights, monkeypatch):
    config = TrainConfig.of(
        data=str(large_photos),
        trunk="timm:test_resnet",
        pretrained=str(weights),
        last_stage=last_stage,
        device="cpu",
        batch_size=8,
        epochs=1,
    )
    found = ladder(config, splits=2)
    assert [row.name for row in found.rows][-1] == last
    again = ladder(config, splits=2)
    assert [row.map_at_r for row in again.rows] == [row.map_at_r for row in found.rows]


@pytest.mark.parametrize(("few", "splits", "batches"), [(29, 5, 2), (28, 3, 3)])
def test_all_weights_are_tried_on_any_number_of_photos(few, splits, batches, large_photos, weights, monkeypatch):
    monkeypatch.setattr(rung_settings, "FEW_PHOTOS", few)
    config = TrainConfig.of(
        data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu", batch_size=16
    )
    assert default_ladder(config).splits == splits
    found = ladder(config, splits=2)
    assert [row.name for row in found.rows] == ["raw", "frozen", "whitened", "head", "full"]
    assert found.rows[-1].title == f"all weights trained for {batches} batches"


def test_features_that_are_known_start_the_embedding_layer_as_the_training_does(large_photos, weights):
    config = TrainConfig.of(
        data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu", batch_size=16, lr=1e-12
    )
    plan = plan_of_ladder(config)
    items = plan.task.train
    whole = whole_config(plan.config, batches=2)
    out = np.isin(items.labels, held_out_classes(items, 1, 0)[0])
    features = frozen_features(items, plan.config)
    found = trained_embeddings(whole, items, out, features=features)
    assert_allclose(found, trained_embeddings(whole, items, out), rtol=1e-4, atol=1e-5)
    assert len(found) == out.sum()
    assert np.ptp(found) > 0


@pytest.fixture
def full_wins(monkeypatch):
    """Make the ladder find that all weights of photos are worth training."""
    rows = (rung("raw", 0.1, 0.2, 0.3), rung("frozen", 0.5, 0.6, 0.7), rung("full", 0.7, 0.75, 0.89))
    monkeypatch.setattr(climbing, "compare_rungs", lambda config, **how: Ladder("", rows, "full", ratio=0.5))


def test_few_photos_whose_ladder_ends_with_all_weights_train_on_all_classes(full_wins, large_photos, weights, tmp_path):
    config = TrainConfig.of(
        data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu", batch_size=16
    )
    said = []
    made = climb(config, tmp_path / "run", progress=False, on_choice=said.append)
    assert said == ["all weights trained"]  # not for the batches of the ladder
    assert made.step == 4 * 2  # epochs of two batches each
    assert made.task.validation is None
    assert len(made.task.train.classes) == 7
    choice = json.loads((made.folder / "choice.json").read_text())
    assert [one["name"] for one in choice["candidates"]] == ["raw", "frozen", "trained"]
    assert_allclose([one["map_at_r"] for one in choice["candidates"]], [0.2, 0.6, 0.78])
    assert choice["kept"] == choice["best"] == "trained"
    assert choice["sentence"] == (
        "Kept: the network, all weights trained, MAP@R 0.780 on held-out classes (raw pixels 0.200; frozen features "
        "0.600). The gain over frozen features is 0.180 on average, and 0.150 to 0.200 in single splits. Then it was "
        "trained for 8 batches on all training classes, also those that the ladder held out."
    )
    assert evaluate_run(made, clustering=False).kept == choice["sentence"]
    assert choice["sentence"] in html.unescape(report_run(made.folder).read_text())


@pytest.mark.parametrize(
    ("fewest", "most", "expected"),
    [(9, 99, {"steps": 9, "validation": 0.0}), (3, 99, {"steps": 8, "validation": 0.0}), (9, 27, {})],
)
def test_photos_are_trained_as_long_as_there_are_many(fewest, most, expected, large_photos, weights, monkeypatch):
    """Few for some batches; more for the epochs of the recipe; those that the ladder saw a part of compare again."""
    monkeypatch.setattr(rung_settings, "FINAL_BATCHES", fewest)
    monkeypatch.setattr(rung_settings, "MAX_ITEMS", most)
    config = TrainConfig.of(data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu")
    found = on_all_classes(config)
    added = set(found.given) - set(config.given)
    assert {name: getattr(found, name) for name in added & {"steps", "epochs", "validation"}} == expected


def test_few_photos_have_the_ladder_within_their_minutes(large_photos, weights, tmp_path, monkeypatch):
    config = TrainConfig.of(
        data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu", batch_size=16
    )
    asked = []

    def compared(config, **how):
        asked.append(how)
        return Ladder("", (rung("raw", 0.1), rung("frozen", 0.5)), "frozen", ratio=0.5)

    monkeypatch.setattr(climbing, "compare_rungs", compared)
    climb(config, tmp_path / "few", minutes=TimeLimit(4, Clock()), progress=False)
    assert (asked[0]["seconds"], asked[0]["splits"]) == (pytest.approx(0.6 * 240), 5)
    monkeypatch.setattr(rung_settings, "FEW_PHOTOS", 28)
    climb(config.replace(steps=2), tmp_path / "many", minutes=4, progress=False)
    assert len(asked) == 1


def test_few_photos_are_trained_at_the_size_that_the_ladder_compared(large_photos, weights, tmp_path, monkeypatch):
    """Smaller images would fit more batches into the time, but nothing would compare them with what is cheaper."""
    config = TrainConfig.of(data=str(large_photos), trunk="timm:test_resnet", pretrained=str(weights), device="cpu")
    found = Ladder("", (rung("raw", 0.1), rung("frozen", 0.5), rung("full", 0.9)), "full", ratio=0.5)
    monkeypatch.setattr(climbing, "compare_rungs", lambda config, **how: found)
    asked = []

    def trained(config, out, **how):
        asked.append(config)
        raise InterruptedError

    monkeypatch.setattr(climbing, "train", trained)
    with pytest.raises(InterruptedError):
        climb(config, tmp_path / "few", minutes=TimeLimit(4, Clock()), progress=False)
    assert {"image_size", "resize", "steps"} <= set(asked[0].given)
    assert asked[0].image_size == settle(config).config.image_size


@pytest.mark.parametrize("given", [{"steps": 2}, {"validation": 0.4}, {"metric": "auto"}])
def test_few_photos_keep_the_settings_of_length_and_validation_that_were_given(given):
    config = TrainConfig.of(data="photos", trunk="timm:test_resnet", pretrained=True, **given)
    assert on_all_classes(config) == config


@pytest.mark.slow
def test_a_comparison_can_begin_with_the_table(photos, tmp_path, capsys, monkeypatch):
    words = [
        "compare",
        photos,
        "--objective",
        "TripletLoss()",
        "--seeds",
        1,
        "--set",
        "steps=2",
        "--set",
        "image_size=20",
    ]
    words += ["--set", "trunk=conv4(width=8)", "--set", "batch_size=24", "--ladder", "yes", "--out", tmp_path / "runs"]
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 0, err
    assert out.index("Worth it: ") < out.index("TripletLoss()")


class Clock:
    """A clock that others turn on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_the_share_of_the_work_is_that_of_its_seconds():
    clock = Clock()
    told = []
    work = ExpectedWork(lambda share, left: told.append((share, left)), clock)
    work.expect("features", 100, 0.1)
    work.expect("head", 4, 0.5)
    clock.now = 30.0  # three times as long as expected
    work.advance("features", 100)
    work.expect("full", 10, 6.0)  # known now
    for _ in range(4):
        clock.now += 1.0
        work.advance("head")
    for _ in range(10):
        clock.now += 11.4
        work.advance("full")
    assert told[0] == (30 / 32, 2.0)
    assert told[-1] == (1.0, 0.0)
    share, left = told[-5]
    assert_allclose([share, left], [(34 + 6 * 11.4) / (34 + 114), 4 * 11.4])
    assert work.seconds("full") == pytest.approx(114)


@pytest.mark.slow
def test_progress_ends_with_the_last_split_and_times_are_those_of_all_splits(table, monkeypatch):
    clock = Clock()
    told = []
    embed_held = comparing.trained_embeddings

    def trained(*args, **how):
        clock.now += 100.0
        return embed_held(*args, **how)

    monkeypatch.setattr(comparing, "trained_embeddings", trained)
    monkeypatch.setattr(comparing, "ExpectedWork", lambda tell: ExpectedWork(tell, clock))
    config = TrainConfig.of(data=table, device="cpu", batch_size=16)
    found = ladder(config, splits=2, untrained_splits=2, on_progress=lambda *now: told.append((clock.now, *now)))
    assert found.rows[-1].seconds == 200.0
    shares = [share for now, share, _ in told if now == 100.0]
    assert max(shares) < 1
    assert told[-1][1:] == (1.0, 0.0)


@pytest.mark.slow
def test_a_table_of_little_time_has_fewer_items_and_splits(tmp_path, monkeypatch):
    clock = Clock()
    read = comparing.raw_items
    embed_held = comparing.trained_embeddings

    def reading(items, scale):
        clock.now += len(items)
        return read(items, scale)

    def trained(*args, **how):
        clock.now += 100.0
        return embed_held(*args, **how)

    monkeypatch.setattr(comparing, "raw_items", reading)
    monkeypatch.setattr(comparing, "trained_embeddings", trained)
    monkeypatch.setattr(comparing, "SECONDS_OF_HEAD", 100.0 / comparing.HEAD_STEPS)
    monkeypatch.setattr(comparing, "ExpectedWork", lambda tell: ExpectedWork(tell, clock))
    monkeypatch.setattr(comparing, "TimeLimit", lambda minutes: TimeLimit(minutes, clock))
    y = np.array([f"class{c:02d}" for c in range(CLASSES)]).repeat(8)
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(len(y), 4)), y=y)
    config = TrainConfig.of(
        data=str(tmp_path / "rows.npz"), test_classes=["class00", "class01"], batch_size=24, device="cpu"
    )
    whole = ladder(config, splits=4, untrained_splits=4, seconds=1000.0)
    assert ": 80 rows of 10 training classes; 4 splits" in whole.protocol
    assert len(whole.rows[-1].map_at_r) == 4
    clock.now = 0.0
    short = ladder(config, splits=4, untrained_splits=4, seconds=340.0)
    assert len(short.rows[-1].map_at_r) == 2
    assert clock.now <= 340.0
    clock.now = 0.0
    shorter = ladder(config, splits=4, untrained_splits=4, seconds=150.0)
    assert ": 48 rows of 6 training classes, drawn from 80 of 10" in shorter.protocol
    assert [row.name for row in shorter.rows] == ["raw", "whitened"]
    assert clock.now <= 150.0


def test_progress_is_written_as_lines_into_a_file():
    advanced = []
    lines = []
    shown = RungProgress(advanced.append, lines.append)
    shown.on_rung("frozen features")
    shown.on_progress(0.3, 70.0)
    shown.on_progress(0.62, 40.0)
    shown.on_rung("last stage trained")
    assert lines == [
        "comparing rungs: frozen features",
        "comparing rungs: last stage trained, 62% done, about 40 s left",
    ]
    assert advanced == [300, 320]
