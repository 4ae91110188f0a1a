"""Random changes of image batches."""

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from nearfar.data import DataError
from nearfar.data.augment import Augment, to_float
from nearfar.data.transforms.colors import Blur, Color, Gray
from nearfar.data.transforms.geometry import Affine, Crop, Erasing, Mirror, ResizedCrop

ALL = "affine, resized_crop, crop, mirror, color, gray, blur, erasing"


@pytest.fixture
def images():
    return torch.rand(16, 3, 12, 20, generator=torch.Generator().manual_seed(0))


def seeded(text: str, seed: int = 0) -> Augment:
    return Augment.parse(text, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("text", [*ALL.split(", "), ALL])
def test_shape_range_and_repetition(images, text):
    changed = seeded(text)(images)
    assert changed.shape == images.shape
    assert changed.min() >= -1e-6
    assert changed.max() <= 1 + 1e-6
    assert not torch.equal(changed, images)
    assert torch.equal(changed, seeded(text)(images))
    assert not torch.equal(changed, seeded(text, 1)(images))


def test_the_global_generator_serves_where_none_is_given(images):
    augment = Augment.parse(ALL)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = augment(images), augment(images)
    torch.set_rng_state(state)
    assert torch.equal(augment(images), first)
    assert torch.equal(augment(images), second)
    assert not torch.equal(first, second)


def test_an_own_generator_leaves_the_global_one_alone(images):
    state = torch.get_rng_state()
    seeded(ALL)(images)
    assert torch.equal(state, torch.get_rng_state())


def test_evaluation_changes_nothing(images):
    assert seeded(ALL).eval()(images) is images


def test_mirror_swaps_columns(images):
    assert torch.equal(Augment(mirror={"p": 1.0})(images), images.flip(3))
    assert torch.equal(Augment(mirror={"p": 0.0})(images), images)
    half = seeded("mirror")(images)
    swapped = [torch.equal(half[i], images[i].flip(2)) for i in range(16)]
    assert 0 < sum(swapped) < 16
    assert all(swapped[i] or torch.equal(half[i], images[i]) for i in range(16))


def test_crop_is_a_window_of_the_padded_image(images):
    cut = seeded("crop(padding=3, fill=0.5)")(images)
    padded = torch.nn.functional.pad(images, [3] * 4, value=0.5)
    windows = padded.unfold(2, 12, 1).unfold(3, 20, 1)  # (n, 3, 7, 7, 12, 20)
    places = set()
    for i in range(16):
        same = (windows[i] == cut[i][:, None, None]).flatten(3).all(dim=3).all(dim=0)  # (7, 7)
        assert same.sum() == 1
        places.add(tuple(same.nonzero()[0].tolist()))
    assert len(places) > 5
    assert Augment(crop={"size": 10})(images).shape == (16, 3, 10, 10)
    with pytest.raises(DataError, match="size 40 is larger than the padded 12x20"):
        Augment(crop={"size": 40})(images)


def test_every_offset_of_a_crop_is_drawn():
    ramp = torch.arange(5.0).expand(500, 1, 1, 5)
    firsts = Crop(size=1, padding=0)(ramp, _draw(0)).flatten()
    assert firsts.unique().tolist() == [0, 1, 2, 3, 4]


def _draw(seed: int):
    generator = torch.Generator().manual_seed(seed)
    return lambda low, high, *shape: torch.rand(shape, generator=generator) * (high - low) + low


def _highest(low: float, high: float, *shape: int) -> torch.Tensor:
    return torch.full(shape, float(high))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(5, 40), st.integers(5, 40))
def test_erasing_fills_one_rectangle_of_lawful_size(seed, height, width):
    erased = Erasing(p=1.0, fill=-1.0)(torch.zeros(8, 2, height, width), _draw(seed)) == -1
    assert torch.equal(erased[:, 0], erased[:, 1])
    for mask in erased[:, 0]:
        rows, columns = mask.any(dim=1), mask.any(dim=0)
        area = int(rows.sum() * columns.sum())
        assert area == int(mask.sum()), "a full rectangle"
        assert 0 < area <= 0.4 * height * width + max(height, width) + 1
        assert rows.nonzero().diff(dim=0).eq(1).all()


def test_erasing_happens_half_of_the_time():
    erased = Erasing(fill=1.0)(torch.zeros(2000, 1, 8, 8), _draw(0)).flatten(1).any(dim=1)
    assert 0.45 < erased.float().mean() < 0.55


def test_an_affine_map_of_nothing_is_the_identity(images):
    still = Affine(degrees=0, translate=0, scale=(1, 1), shear=0)
    torch.testing.assert_close(still(images, _draw(0)), images, rtol=0, atol=1e-5)


def test_a_quarter_turn_and_a_shift():
    image = torch.rand(1, 1, 9, 9)
    turned = Affine(degrees=90, translate=0, scale=(1, 1), shear=0)(image, _highest)
    torch.testing.assert_close(turned, torch.rot90(image, 1, (2, 3)), rtol=0, atol=1e-5)
    by_a_third = Affine(degrees=0, translate=1 / 3, scale=(1, 1), shear=0, fill=7.0)
    shifted = by_a_third(image, _highest)
    torch.testing.assert_close(shifted[..., :6, :6], image[..., 3:, 3:], rtol=0, atol=1e-5)
    assert (shifted[..., 7:, :] == 7).all()


def test_rotation_keeps_distances_on_oblong_images():
    image = torch.zeros(1, 1, 21, 41)
    image[..., 10, 28:31] = 1  # 9 to the right of the center
    turned = Affine(degrees=90, translate=0, scale=(1, 1), shear=0)(image, _highest)
    row, column = turned[0, 0].nonzero().float().mean(dim=0).tolist()
    assert abs(column - 20) < 0.6
    assert abs(abs(row - 10) - 9) < 0.6


def test_a_resized_crop_of_everything_is_a_resize(images):
    whole = ResizedCrop(area=(1, 1), ratio=(20 / 12, 20 / 12))
    torch.testing.assert_close(whole(images, _draw(0)), images, rtol=0, atol=1e-5)
    ramp = torch.linspace(0, 1, 20).expand(50, 1, 20, 20)
    part = ResizedCrop(size=6, area=(0.2, 0.5))(ramp, _draw(0))
    assert part.shape == (50, 1, 6, 6)
    assert (part.diff(dim=3) > 0).all()
    assert ((part[..., -1] - part[..., 0]) < 0.8).all()
    for parts in (part, ResizedCrop(size=6, area=(0.2, 0.5))(ramp.mT, _draw(0))):  # from one side to the other
        assert parts.min() < 0.1
        assert parts.max() > 0.9


NO_COLOR = {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}


def test_colors_that_do_not_change_are_kept(images):
    torch.testing.assert_close(Color(**NO_COLOR, p=1)(images, _draw(0)), images, rtol=0, atol=1e-6)
    assert torch.equal(Color(p=0)(images, _draw(0)), images)


@pytest.mark.parametrize("sign", [1, -1])
def test_each_change_of_color_is_the_published_one(images, sign):
    def most(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.full(shape, 0.0 if (low, high) == (0, 1) else float(sign * high))  # every image is chosen

    images = 0.25 + images / 4  # nothing is cut at 0 or 1
    light = Color(**NO_COLOR | {"brightness": 0.5}, p=1)(images, most)
    torch.testing.assert_close(light, (1 + sign / 2) * images)
    gray = images[:, 0] * 0.299 + images[:, 1] * 0.587 + images[:, 2] * 0.114
    mean = gray.mean(dim=(1, 2))[:, None, None, None]
    contrast = Color(**NO_COLOR | {"contrast": 0.5}, p=1)(images, most)
    torch.testing.assert_close(contrast, mean + (1 + sign / 2) * (images - mean))
    saturated = Color(**NO_COLOR | {"saturation": 0.5}, p=1)(images, most)
    torch.testing.assert_close(saturated, gray[:, None] + (1 + sign / 2) * (images - gray[:, None]))
    third = Color(**NO_COLOR | {"hue": 1 / 3}, p=1)(images, most)
    torch.testing.assert_close(third, images.roll(sign, dims=1))  # red becomes green, green blue, blue red
    sixth = Color(**NO_COLOR | {"hue": 1 / 6}, p=1)(images, most)
    torch.testing.assert_close(sixth.mean(1), images.mean(1))
    torch.testing.assert_close(sixth.std(1), images.std(1))


def test_gray_images_have_brightness_and_contrast_only():
    images = torch.rand(4, 1, 6, 6) / 2
    torch.testing.assert_close(Color(0, 0, 0.9, 0.5, p=1)(images, _draw(0)), images)
    assert not torch.equal(Color(p=1)(images, _draw(0)), images)
    torch.testing.assert_close(Gray(p=1)(images, _draw(0)), images)


def test_gray_has_one_value_in_all_channels(images):
    gray = Gray(p=1)(images, _draw(0))
    assert torch.equal(gray[:, 0], gray[:, 1])
    assert torch.equal(gray[:, 0], gray[:, 2])
    assert torch.equal(Gray(p=0)(images, _draw(0)), images)


def test_blur_is_the_gaussian_of_each_image(images):
    sigmas = torch.rand(16, generator=torch.Generator().manual_seed(0)) * 1.5 + 0.5
    blurred = Blur(sigma=(0.5, 2.0), p=1)(images.double(), _draw(0))
    for image, found, sigma in zip(images.double(), blurred, sigmas, strict=True):
        for channel, of_channel in zip(image.numpy(), found, strict=True):
            expected = ndimage.gaussian_filter(channel, float(sigma), mode="nearest", radius=6)
            torch.testing.assert_close(of_channel, torch.from_numpy(expected), rtol=0, atol=1e-6)
    assert torch.equal(Blur(sigma=(0, 0), p=1)(images, _draw(0)), images)
    flat = torch.full((2, 3, 5, 7), 0.3)
    torch.testing.assert_close(Blur(p=1)(flat, _draw(1)), flat)


def test_gradients_pass(images):
    images.requires_grad_()
    seeded(ALL)(images).sum().backward()
    assert torch.isfinite(images.grad).all()


def test_settings_from_text_dicts_and_parts_agree():
    text = Augment.parse("erasing(p=0.25, area=(0.1, 0.2)), mirror")
    mapping = Augment.parse({"mirror": True, "erasing": {"p": 0.25, "area": [0.1, 0.2]}})
    parts = Augment(mirror=Mirror(), erasing=Erasing(0.25, (0.1, 0.2)))
    assert text.parts == mapping.parts == parts.parts
    assert Augment.parse("").parts == Augment.parse({}).parts == []
    assert "Erasing(p=0.25" in repr(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("flip", f"unknown transform 'flip'; expected some of {ALL}"),
        ({"flip": True}, "unknown transform 'flip'"),
        ("affine(angle=3)", "affine has no setting 'angle'; it has degrees, translate, scale, shear, fill"),
        ("affine(3)", "affine takes only keywords"),
        ("affine(degrees=x)", "affine: degrees must be a literal value such as 3, 'text' or (1, 2); got 'x()'"),
        ("mirror; erasing", "at character 7, ';' is not allowed"),
        ("mirror], [erasing", "at character 7, expected ',', got ']'"),
        ("a + b", "'a() + b()' is not a list of changes such as affine(degrees=15), erasing"),
        ({"mirror": 3}, "mirror=3; expected true, false or settings"),
        ("affine(scale=2)", "affine: scale: Expected two numbers, got 2"),
        ("erasing(area=(0.5,))", "erasing: area: Expected two numbers, got (0.5,)"),
        ("erasing(area=(0.5, 'a'))", "erasing: area: Expected `float`, got (0.5, 'a')"),
        ("erasing(area=(0.5, 0.1))", "erasing: area: the second must not be below the first, got (0.5, 0.1)"),
        ("mirror(p=7)", "mirror: p: Expected `float` <= 1.0, got 7"),
        ("resized_crop(size=-3)", "resized_crop: size: Expected `int` >= 1, got -3"),
        ({"crop": {"padding": "3"}}, "crop: padding: Expected `int | null`, got '3'"),
    ],
)
def test_unknown_settings_are_named(given, message):
    with pytest.raises(DataError) as caught:
        Augment.parse(given)
    assert message in str(caught.value)


@pytest.mark.parametrize("bad", [torch.zeros(3, 5), torch.zeros(2, 1, 4, 4, dtype=torch.uint8)])
def test_other_inputs_are_refused(bad):
    with pytest.raises(DataError, match=r"expected \(b, C, H, W\) floats, got"):
        Augment(mirror=True)(bad)


def test_bytes_become_floats():
    assert to_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0, 1]
    assert to_float(torch.tensor([3.0])).tolist() == [3]
