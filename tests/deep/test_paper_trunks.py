"""The trunks of the founding papers: their layers, any size of images, and files of weights that fit them."""

import struct

import pytest

torch = pytest.importorskip("torch")

from nearfar.deep.networks.bn_inception import _halved
from nearfar.deep.networks.caffe_weights import CaffeFileError, read_caffe_weights
from nearfar.deep.networks.trunks import make_trunk
from nearfar.deep.networks.weights import TrunkError

CLASSIFIERS = {"googlenet": 1000 * 1025, "resnet50": 1000 * 2049}
PUBLISHED = {"googlenet": 6_998_552, "resnet50": 25_557_032}


@pytest.mark.parametrize("name", ["googlenet", "resnet50"])
def test_as_many_weights_as_the_published_network(name) -> None:
    trunk = make_trunk(name, (3, 64, 64))
    assert sum(p.numel() for p in trunk.parameters()) == PUBLISHED[name] - CLASSIFIERS[name]


@pytest.mark.parametrize(
    ("name", "size", "side"),
    [
        ("bn_inception", 75, 3),
        ("bn_inception", 240, 8),
        ("bn_inception", 299, 10),
        ("googlenet", 240, 7),
        ("resnet50", 75, 3),
    ],
)
def test_images_of_any_size(name, size, side) -> None:
    with torch.device("meta"):
        trunk = make_trunk(name, (3, size, size)).eval()
        assert trunk.maps(torch.rand(1, 3, size, size)).shape == (1, trunk.num_features, side, side)


def test_images_that_are_not_square() -> None:
    trunk = make_trunk("bn_inception", (3, 75, 40)).eval()
    with torch.no_grad():
        assert trunk(torch.rand(1, 3, 75, 40)).shape == (1, 1024)


def test_pools_of_even_sides_are_the_published_ones() -> None:
    x = torch.rand(2, 3, 14, 28)
    assert torch.equal(_halved(x), torch.nn.functional.max_pool2d(x, 3, 2, ceil_mode=True))
    odd = torch.rand(2, 3, 15, 28)
    assert torch.equal(_halved(odd)[:, :, :7], torch.nn.functional.max_pool2d(odd, 3, 2, ceil_mode=True))
    assert torch.equal(_halved(odd)[:, :, 7], torch.nn.functional.max_pool1d(odd[:, :, 14], 3, 2, ceil_mode=True))


def test_googlenet_sees_blue_green_red() -> None:
    trunk = make_trunk("googlenet", (3, 32, 32)).eval()
    seen = []
    trunk.conv1_7x7_s2.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    red = torch.zeros(1, 3, 32, 32)
    red[:, 0] = 1.0
    with torch.no_grad():
        trunk(red)
    assert seen[0][0, :, 0, 0].tolist() == [-104.0, -117.0, 255.0 - 123.0]


def test_response_normalization_is_caffes() -> None:
    x = torch.randn(1, 7, 2, 2, dtype=torch.float64)
    found = torch.nn.functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75)
    for channel in range(7):
        near = x[:, max(0, channel - 2) : channel + 3].square().sum(1)
        expected = x[:, channel] / (1 + 1e-4 / 5 * near) ** 0.75
        torch.testing.assert_close(found[:, channel], expected)


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def blob(tensor: torch.Tensor, *, older: bool, packed: bool = True) -> bytes:
    numbers = [struct.pack("<f", value) for value in tensor.flatten().tolist()]
    if packed:
        data = field(5, b"".join(numbers))
    else:
        data = b"".join(varint(5 << 3 | 5) + number for number in numbers)
    if older:
        sizes = [1] * (4 - tensor.ndim) + list(tensor.shape)
        return b"".join(varint(place << 3) + varint(size) for place, size in enumerate(sizes, 1)) + data
    return data + field(7, field(1, b"".join(map(varint, tensor.shape))))


def caffemodel(layers: dict[str, list[torch.Tensor]], *, older: bool, packed: bool = True) -> bytes:
    outer, name_field, blob_field = (2, 4, 6) if older else (100, 1, 7)
    content = field(1, b"a network")
    for name, blobs in layers.items():
        parts = [field(name_field, name.encode())]
        parts += [field(blob_field, blob(one, older=older, packed=packed)) for one in blobs]
        content += field(outer, b"".join(parts))
    return content


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_reads_both_generations_of_caffes_files(older, packed) -> None:
    weight = torch.randn(4, 3, 2, 2)
    bias = torch.randn(4)
    content = caffemodel({"conv1/7x7_s2": [weight, bias], "data": []}, older=older, packed=packed)
    found = read_caffe_weights(content)
    assert list(found) == ["conv1_7x7_s2.weight", "conv1_7x7_s2.bias"]
    assert torch.equal(found["conv1_7x7_s2.weight"], weight)
    assert torch.equal(found["conv1_7x7_s2.bias"].flatten(), bias)


def test_damaged_files_are_refused_in_one_line() -> None:
    content = caffemodel({"a": [torch.randn(4)]}, older=False)
    for cut in range(1, len(content)):
        with pytest.raises(CaffeFileError):
            read_caffe_weights(content[:cut])
    with pytest.raises(CaffeFileError, match="shape"):
        read_caffe_weights(field(100, field(1, b"a") + field(7, field(5, b"1234") + field(7, field(1, b"\x05")))))
    for foreign in (b"", b"not weights", b"\xff" * 40):
        with pytest.raises(CaffeFileError):
            read_caffe_weights(foreign)


@pytest.mark.parametrize("sides", [b"\x00" + b"\xff" * 9 + b"\x01", b"\x00" + 2 * (b"\x80" * 5 + b"\x20")])
def test_sides_that_are_too_long_for_an_array_are_refused(sides) -> None:
    blob = field(5, b"") + field(7, field(1, sides))
    with pytest.raises(CaffeFileError, match="holds 0 numbers"):
        read_caffe_weights(field(100, field(1, b"a") + field(7, blob)))


def test_googlenet_takes_caffes_weights(tmp_path) -> None:
    source = make_trunk("googlenet", (3, 32, 32))
    layers = {
        name.replace("_", "/", 2 if name.startswith("inception") else 1): [
            layer.weight.detach(),
            layer.bias.detach(),
        ]
        for name, layer in source.named_children()
    }
    layers = {name.replace("inception/", "inception_", 1): blobs for name, blobs in layers.items()}
    assert "inception_3a/5x5_reduce" in layers
    layers["loss1/classifier"] = [torch.zeros(2, 3), torch.zeros(2)]
    path = tmp_path / "bvlc_googlenet.caffemodel"
    content = b""
    for name, blobs in layers.items():
        parts = [field(4, name.encode())]
        for one in blobs:
            sizes = [1] * (4 - one.ndim) + list(one.shape)
            head = b"".join(varint(place << 3) + varint(size) for place, size in enumerate(sizes, 1))
            parts.append(field(6, head + field(5, one.numpy().astype("<f4").tobytes())))
        content += field(2, b"".join(parts))
    path.write_bytes(content)
    target = make_trunk("googlenet", (3, 32, 32), weights=path)
    assert torch.equal(target.inception_4e_5x5.weight, source.inception_4e_5x5.weight)
    assert target.provenance.left_out == ("loss1_classifier.bias", "loss1_classifier.weight")
    path.write_bytes(caffemodel({"conv1/7x7_s2": [torch.zeros(1)]}, older=True))
    with pytest.raises(TrunkError, match="does not fit"):
        make_trunk("googlenet", (3, 32, 32), weights=path)
    path.write_bytes(b"torn")
    with pytest.raises(TrunkError, match="not readable as weights"):
        make_trunk("googlenet", (3, 32, 32), weights=path)
