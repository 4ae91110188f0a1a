"""Objectives: sums, weights, and their text form."""

import copy
import re
import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

import nearfar
from nearfar.deep.objective.parser import ObjectiveError, parse_objective
from nearfar.deep.objective.relations import LabelSets, of_pairs
from nearfar.deep.pairwise.row_loss import RowLoss
from nearfar.deep.proxies.class_proxies import ClassProxyLoss


def batch():
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, torch.arange(12) % 4


def test_text_and_python_are_the_same_objective():
    x, y = batch()
    text = parse_objective("TripletLoss(margin=0.1, miner=BatchHard()) + 0.5*NPairLoss(reg=0.01) + ContrastiveLoss*2")
    code = (
        nearfar.TripletLoss(0.1, miner=nearfar.BatchHard())
        + 0.5 * nearfar.NPairLoss(0.01)
        + 2 * nearfar.ContrastiveLoss()
    )
    assert text.weights == code.weights == [1.0, 0.5, 2.0]
    torch.testing.assert_close(text(x, y), code(x, y))
    assert list(text.parts_) == ["TripletLoss", "NPairLoss", "ContrastiveLoss"]


def test_an_objective_prints_as_its_text():
    text = "TripletLoss(margin=0.1, miner=BatchHard()) + 0.5*NPairLoss(reg=0.01) + 2*ContrastiveLoss()"
    assert repr(parse_objective(text)) == text
    assert repr(copy.deepcopy(parse_objective(text))) == text
    assert repr(nearfar.CMLLoss(nearfar.NPairLoss(), energy=0.3)) == "CMLLoss(base=NPairLoss(), energy=0.3)"


def test_tuples_of_another_library_are_told_what_replaces_them():
    x, y = batch()
    one, other = nearfar.TripletLoss(), nearfar.AMSoftmaxLoss(4, 5)
    for term in (one, other, one + other, nearfar.CrossBatchMemory(one, size=16)):
        with pytest.raises(TypeError, match=rf"{type(term).__name__}: .* all else by name .*miner=BatchHard.*relation"):
            term(x, y, (y[:2], y[2:4], y[4:6]))


def test_python_can_sum_them():
    x, y = batch()
    one, two = nearfar.TripletLoss(), nearfar.NPairLoss()
    torch.testing.assert_close(sum([one, two])(x, y), (one + two)(x, y))


def test_weights_multiply_through_sums():
    total = 2 * (nearfar.TripletLoss() + 3 * nearfar.TripletLoss(0.5))
    assert total.weights == [2.0, 6.0]
    assert total.names() == ["TripletLoss", "TripletLoss_2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TripletLos()", "no method is called 'TripletLos'; did you mean TripletLoss"),
        ("TripletMarginLoss()", "is called 'TripletMarginLoss'; here it is TripletLoss"),
        ("TripletLoss(margin='a')", "TripletLoss: margin must be a number or None; got 'a'"),
        ("TripletLoss(margn=0.2)", "has no setting 'margn'; did you mean margin"),
        ("TripletLoss(margin=0.1, margin=0.2)", "TripletLoss is given 'margin' twice"),
        ("TripletLoss(0.2)", "takes only keywords"),
        ("TripletLoss(miner=3)", "objective: TripletLoss: miner must be a miner such as BatchHard(), got 3"),
        ("TripletLoss(miner=TripletLoss())", "objective: TripletLoss: miner must be a miner such as BatchHard(), got"),
        (
            "HORDE(embedding_dim=4, loss=BatchHard())",
            "objective: HORDE: loss must be a loss such as BinomialDevianceLoss(), got",
        ),
        ("HORDE(embedding_dim=4, loss='Tripletloss()')", "no method is called 'Tripletloss'"),
        (
            "JRS(layers=3)",
            "JRS: layers must be some of pooled, embedding, class or modules such as trunk.layer3, each once, got (3,)",
        ),
        ("MultiScaleRelationNet(margin='a')", "MultiScaleRelationNet: margin must be a number; got 'a'"),
        ("MultiScaleRelationNet(depths=3)", "MultiScaleRelationNet: expected a depth >= 1 for each of"),
        ("TripletLoss() ** 2", "at character 16, expected a name or a value, got '*'"),
        (
            "TripletLoss() / 2",
            "'TripletLoss() / 2' is not a sum of losses such as 'TripletLoss(margin=0.2)': at character 15, '/'",
        ),
        ("TripletLoss() - NPairLoss()", "at character 15, expected + or *; a difference is written + -1*Name()"),
        ("NPairLoss() + -TripletLoss()", "at character 15, only a number may stand after '-' here"),
        ("-1", "is not allowed"),
        ("TripletLoss() * NPairLoss()", "must multiply a number by a loss"),
        ("2 * 3", "must multiply a number by a loss"),
        ("__import__('os').system('true')", "at character 17, '.' is not allowed"),
        ("TripletLoss(margin=__import__('os'))", "no method is called '__import__'"),
        ("BatchHard()", "is not a loss"),
        ("TripletLoss() + BatchHard()", "not a loss that can be added"),
        ("GMML()", "is a learner, not part of an objective"),
        ("TripletLoss(distance='far')", "distance must be one of"),
        ("TripletLoss(", "is not a sum of losses"),
        ("", "is not a sum of losses"),
    ],
)
def test_bad_text_names_the_part(text, message):
    with pytest.raises(ObjectiveError, match=re.escape(message)) as told:
        parse_objective(text)
    assert str(told.value).count("objective: ") == 1


@pytest.fixture
def own_losses(monkeypatch):
    """A module of a user's own: a loss, a loss with proxies, a miner, and what is no part of an objective."""

    class Farthest(RowLoss):
        def __init__(self, margin=0.1, *, miner=None):
            super().__init__(distance="cosine", normalize=True, miner=miner)
            if margin < 0:
                raise ValueError(f"Farthest: margin must not be negative, got {margin}")
            self.margin = margin

        def rows(self, rows):
            return rows.d.masked_fill(~rows.pos, 0).amax(1) + self.margin, rows.pos.any(1)

    class Softplus(ClassProxyLoss):
        scale = 4.0

        def per_sample(self, own, others):
            return torch.nn.functional.softplus(others - own)

    class Nothing:
        def __init__(self, k):
            self.k = k

        def __call__(self, rows):
            return rows._replace(pos=rows.pos & (rows.d < self.k))

    module = ModuleType("own_losses")
    module.__dict__.update(Farthest=Farthest, Softplus=Softplus, Nothing=Nothing, Plain=type("Plain", (), {}), one=1)
    monkeypatch.setitem(sys.modules, "own_losses", module)
    return module


def test_a_text_names_losses_and_miners_of_ones_own(own_losses):
    x, y = batch()
    text = (
        "own_losses:Farthest(margin=0.5, miner=own_losses:Nothing(k=0.7)) + 0.5*own_losses:Softplus"
        " + CrossBatchMemory(loss=own_losses:Farthest(), size=8)"
    )
    made = parse_objective(text, num_classes=4, embedding_dim=5)
    assert made.names() == ["Farthest", "Softplus", "CrossBatchMemory"]
    assert made.terms[1].proxies.shape == (4, 5)
    torch.testing.assert_close(
        made.terms[0](x, y), own_losses.Farthest(0.5, miner=own_losses.Nothing(0.7))(x, y), rtol=0, atol=0
    )
    assert made.double()(x, y).isfinite()


def test_texts_among_the_settings_keep_their_colons(own_losses):
    class Distilled(own_losses.Farthest):
        def __init__(self, teacher, other):
            super().__init__()
            self.teachers = teacher, other

    own_losses.Distilled = Distilled
    made = parse_objective("""own_losses:Distilled(teacher='timm:resnet50', other="own_losses:Farthest()")""")
    assert made.teachers == ("timm:resnet50", "own_losses:Farthest()")
    quoted = parse_objective(r"""own_losses:Distilled(teacher='it\'s a:b', other="say \"c:d\"")""")
    assert quoted.teachers == ("it's a:b", 'say "c:d"')
    horde = parse_objective("HORDE(embedding_dim=4, features=6, loss='own_losses:Farthest(margin=0.3)')")
    assert horde.losses[0].margin == 0.3


def test_a_class_of_ones_own_may_hand_its_settings_on(own_losses):
    class Further(own_losses.Farthest):
        def __init__(self, times=2.0, **settings):
            super().__init__(**settings)
            self.times = times

    own_losses.Further = Further
    made = parse_objective("own_losses:Further(times=3.0, margin=0.3, miner=own_losses:Nothing(k=1))")
    assert (made.times, made.margin, made.miner.k) == (3.0, 0.3, 1)
    for text, message in (
        ("margn=1", "own_losses:Further: .*unexpected keyword argument 'margn'"),
        ("**{'margin': 1}", r"at character 20, expected a name or a value, got '\*'"),
    ):
        with pytest.raises(ObjectiveError, match=message):
            parse_objective(f"own_losses:Further({text})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TripletLoss(miner=BatchHard(k=1))", "BatchHard has no setting 'k'; it takes none"),
        ("TripletLoss(miner=BatchHard(settings=1))", "BatchHard has no setting 'settings'; it takes none"),
        ("own_losses:Far()", "objective: own_losses:Far: module 'own_losses' has no attribute 'Far'"),
        ("no_such:Loss()", "no_such:Loss: No module named 'no_such'; the folder that holds it must be on PYTHONPATH"),
        ("os:system()", "os:system: expected something from a module of your own, not from os"),
        ("torch.nn:Linear()", "expected something from a module of your own, not from torch.nn"),
        ("own_losses:one()", "own_losses:one: expected a class of losses or miners, or of modules, got 1"),
        ("own_losses:Plain()", "own_losses:Plain: expected a class of losses or miners, or of modules, got the class"),
        ("own_losses:Farthest(margn=1)", "own_losses:Farthest has no setting 'margn'; did you mean margin"),
        ("own_losses:Farthest(0.2)", "own_losses:Farthest takes only keywords, such as margin=..."),
        ("own_losses:Farthest(margin=-1)", "Farthest: margin must not be negative, got -1"),
        ("own_losses:Nothing()", "__init__() missing 1 required positional argument: 'k'"),
        (
            "own_losses:Nothing(k=3)",
            "is not a loss; one of your own is a subclass of nearfar.deep.Term",
        ),
        (
            "2*own_losses:Nothing(k=3)",
            "added or weighted; one of your own is a subclass of nearfar.deep.Term",
        ),
        ("TripletLoss(miner=own_losses:Farthest())", "TripletLoss: miner must be a miner such as BatchHard(), got"),
        ("own_losses :Farthest()", "is not a sum of losses"),
        (
            "own_losses.Farthest()",
            "no method is called 'own_losses.Farthest'; one of your own is written package.module:Name",
        ),
        ("(own_losses:Farthest)()()", "at character 22, expected + or *, got '('"),
        ("own_losses:torch.nn.Linear()", "at character 17, '.' is not allowed"),
    ],
)
@pytest.mark.usefixtures("own_losses")
def test_bad_text_of_ones_own_parts_names_the_part(text, message):
    with pytest.raises(ObjectiveError, match=re.escape(message)):
        parse_objective(text)


@pytest.mark.usefixtures("own_losses")
def test_the_path_is_told_of_where_the_module_is_not_there_and_only_then(tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import no_such_module")
    (tmp_path / "takes_another.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    hint = "; the folder that holds it must be on PYTHONPATH"
    for module in ("no_such", "no_such.inner"):
        with pytest.raises(ObjectiveError, match=f"No module named 'no_such'{hint}$"):
            parse_objective(f"{module}:Loss()")
    for module in ("own_losses", "needs_another", "takes_another"):
        with pytest.raises(ObjectiveError) as told:
            parse_objective(f"{module}:Loss()")
        assert "PYTHONPATH" not in str(told.value)


def test_two_terms_cannot_be_multiplied():
    with pytest.raises(TypeError, match="multiply a term by a number"):
        nearfar.TripletLoss() * nearfar.NPairLoss()
    for divisor in (nearfar.NPairLoss(), 0):
        with pytest.raises(TypeError, match="divide a term by a number that is not 0"):
            nearfar.TripletLoss() / divisor


@pytest.mark.parametrize(
    ("code", "weights", "printed"),
    [
        ("TripletLoss()/2 - NPairLoss()", [0.5, -1.0], "0.5*TripletLoss() + -1*NPairLoss()"),
        ("-(TripletLoss() - 3*NPairLoss())/3", [-1 / 3, 1.0], f"-{1 / 3!r}*TripletLoss() + NPairLoss()"),
        ("-TripletLoss()", [-1.0], "-1*TripletLoss()"),
        ("-0.25*TripletLoss() + -1e-07*NPairLoss()", [-0.25, -1e-7], "-0.25*TripletLoss() + -1e-07*NPairLoss()"),
    ],
)
def test_differences_and_quotients_are_weights(code, weights, printed):
    term = eval(code, {"TripletLoss": nearfar.TripletLoss, "NPairLoss": nearfar.NPairLoss})
    assert term.weights == weights
    assert repr(term) == printed
    assert parse_objective(printed).weights == weights
    x, y = batch()
    parts = [part(x, y) for part in term.terms]
    torch.testing.assert_close(term(x, y), sum(w * part for w, part in zip(weights, parts, strict=True)))


def test_a_relation_matrix_equals_the_labels_behind_it():
    x, y = batch()
    relation = (y[:, None] == y).long()
    for loss in (nearfar.TripletLoss(), nearfar.ContrastiveLoss(), nearfar.NPairLoss(), nearfar.LiftedLoss(block=5)):
        torch.testing.assert_close(loss(x, relation), loss(x, y))
        torch.testing.assert_close(loss(x, relation.double()), loss(x, y))
        torch.testing.assert_close(loss(x, relation.fill_diagonal_(0)), loss(x, y))  # nobody is far from itself


def test_references_of_a_relation_matrix_need_no_labels():
    x, y = batch()
    ref = torch.randn(7, x.shape[1], dtype=x.dtype)
    ref_labels = torch.tensor([0, 1, 2, 0, 1, -1, 2])
    relation = torch.where((ref_labels >= 0) & (y >= 0)[:, None], (y[:, None] == ref_labels).long(), -1)
    for loss in (nearfar.TripletLoss(), nearfar.NTXentLoss(), nearfar.ContrastiveLoss(block=3)):
        torch.testing.assert_close(loss(x, relation, ref=ref), loss(x, y, ref=ref, ref_labels=ref_labels))
    with pytest.raises(ValueError, match="needs one column per reference, 6, got 7"):
        nearfar.TripletLoss()(x, relation, ref=ref[:6])
    with pytest.raises(ValueError, match="ref_labels: needed with ref"):
        nearfar.TripletLoss()(x, y, ref=ref)


def test_a_relation_of_listed_pairs_knows_these_alone():
    pairs, similar = (
        torch.tensor([[0, 3], [4, 1], [1, 2], [3, 0], [5, 5]]),
        torch.tensor([True, True, False, True, True]),
    )
    relation = of_pairs(6, similar=pairs[similar], dissimilar=pairs[~similar])
    known = {(int(i), int(j)): int(kind) for (i, j), kind in zip(pairs, similar, strict=True)}
    for i in range(6):
        for j in range(6):
            assert relation[i, j] == known.get((i, j), known.get((j, i), -1))
    for none in (torch.empty(0, 2, dtype=torch.long), torch.tensor([]), []):
        assert (of_pairs(3, none, none) == -1).all()
    for kind in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.byte, torch.Tensor.short):
        assert torch.equal(of_pairs(6, kind(pairs[similar]), kind(pairs[~similar])), relation)


@pytest.mark.parametrize(
    ("similar", "dissimilar", "told"),
    [
        ([[0, 1]], [[1, 0]], r"dissimilar: the pair \[1, 0\] is also in similar"),
        ([[0, 3]], [[1, 2]], r"similar: samples have numbers 0\.\.2, got 0\.\.3"),
        ([[0, 1]], [[-1, 2]], r"dissimilar: samples have numbers 0\.\.2, got -1\.\.2"),
        ([[0.0, 1.0]], [[1, 2]], r"similar: expected integers of shape \(m, 2\), got torch.float32 of shape \(1, 2\)"),
        ([[0, 1]], [1, 2], r"dissimilar: expected integers of shape \(m, 2\), got torch.int64 of shape \(2,\)"),
        ([["a", "b"]], [[1, 2]], r"similar: expected integers of shape \(m, 2\), got \[\['a', 'b'\]\]"),
    ],
)
def test_lists_that_are_no_pairs_are_refused(similar, dissimilar, told):
    with pytest.raises(ValueError, match=told):
        of_pairs(3, similar, dissimilar)


def test_label_sets_are_similar_when_they_meet():
    x, y = batch()
    loss = nearfar.ContrastiveLoss()
    torch.testing.assert_close(loss(x, LabelSets.of([[int(k)] for k in y])), loss(x, y))
    for wrong, number in (([[0], [-1]], None), ([[0], [3]], 3)):
        with pytest.raises(ValueError, match=f"sets: labels must be in .*, got {wrong[1][0]}"):
            LabelSets.of(wrong, num_classes=number)
    sets = LabelSets.of([[0, 1], [1, 2], [2], [0], []], num_classes=3)
    strict = LabelSets(sets.hot, overlap=0.4)
    assert float(loss(x[:5], sets)) != float(loss(x[:5], strict))
    for hot in (sets.hot.numpy(), sets.hot.tolist()):
        assert float(loss(x[:5], LabelSets(hot, overlap=0.4))) == float(loss(x[:5], strict))


def test_unknown_labels_are_neither_near_nor_far():
    x, y = batch()
    known = y.clone()
    known[[2, 7]] = -1
    keep = known >= 0
    for loss in (nearfar.TripletLoss(), nearfar.ContrastiveLoss(), nearfar.NPairLoss(reg=0)):
        torch.testing.assert_close(loss(x, known), loss(x[keep], y[keep]))


def test_another_reference_set():
    x, y = batch()
    for loss in (nearfar.TripletLoss(), nearfar.ContrastiveLoss()):
        value = loss(x[:6], y[:6], ref=x[6:], ref_labels=y[6:])
        relation = (y[:6, None] == y[6:]).long()
        torch.testing.assert_close(loss(x[:6], relation, ref=x[6:], ref_labels=y[6:]), value)
    with pytest.raises(ValueError, match="ref_labels: needed with ref"):
        nearfar.TripletLoss()(x, y, ref=x)
    with pytest.raises(ValueError, match="ref: expected 5 columns"):
        nearfar.TripletLoss()(x, y, ref=x[:, :3], ref_labels=y)
    sets, wide = (LabelSets.of([[label] for label in y.tolist()], num_classes=width) for width in (10, 12))
    for labels, ref_labels, message in (
        (sets, y, "ref_labels: expected LabelSets of 10 columns"),
        (sets, wide, "ref_labels: expected LabelSets of 10 columns"),
        (y, sets, "ref_labels: expected one class per row"),
        (y, y[:, None] == y, "ref_labels: expected one class per row"),
    ):
        with pytest.raises(ValueError, match=message):
            nearfar.TripletLoss()(x, labels, ref=x + 1, ref_labels=ref_labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_batch_as_its_own_reference_is_the_batch(dtype):
    x, y = batch()
    x = x.to(dtype)
    for loss in (
        nearfar.ContrastiveLoss(),
        nearfar.NTXentLoss(block=5),
        nearfar.TripletLoss(miner=nearfar.BatchHard()),
    ):
        torch.testing.assert_close(loss(x, y, ref=x, ref_labels=y), loss(x, y))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block": 0}, "block must be at least 1, got 0"),
        ({"distance": "l7"}, "distance must be one of"),
        ({"reduction": "x"}, "reduction must be"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        nearfar.TripletLoss(**settings)
    for miner in (3, nearfar.BatchHard):
        with pytest.raises(TypeError, match="miner must be a miner"):
            nearfar.TripletLoss(miner=miner)
