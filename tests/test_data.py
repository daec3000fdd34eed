"""`d2djax.data`: every layout reads, equal layouts read equal, and damage is always a `DataError`."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import socket
import struct
import tarfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from d2djax import data
from d2djax.data import DataError, cifar, idx, pickles, rml2016, tfrecord

SHARED = Path(os.environ.get("D2DJAX_SHARED_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no shared data in {SHARED} (D2DJAX_SHARED_DATA)")
GENERATOR = np.random.default_rng(7)
FASHION = {
    "train": (GENERATOR.integers(0, 256, (12, 28, 28), np.uint8), np.arange(12, dtype=np.uint8) % 10),
    "t10k": (GENERATOR.integers(0, 256, (5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)),
}
CIFAR = [(GENERATOR.integers(0, 256, (4, 3072), np.uint8), [i, 9, 0, 3]) for i in range(6)]
RADIO = {
    (mod, snr): GENERATOR.normal(size=(3, 2, 128)).astype(np.float32)
    for mod in ("QPSK", "8PSK", "BPSK")
    for snr in (2, -4)
}


@pytest.fixture(autouse=True)
def offline_and_alone(monkeypatch, tmp_path):
    """No test may reach the network or read data that happens to be installed here."""

    def refuse(*_, **__):
        raise AssertionError("went online")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("D2DJAX_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    debian = replace(data.SOURCES["fashion_mnist"], places=(tmp_path / "debian",))
    monkeypatch.setitem(data.SOURCES, "fashion_mnist", debian)


def same(a, b):
    return np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) and a.class_names == b.class_names


def fails(name, place, *words, **options):
    """Checks that loading is refused in one line which holds all `words`."""
    with pytest.raises(DataError) as caught:
        data.load(name, place, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert str(word) in message, message


# --- writers ---


def idx_bytes(array, code=8):
    return struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, *, packed=True, dotted=False):
    folder.mkdir(parents=True, exist_ok=True)
    for split, arrays in FASHION.items():
        for kind, array in zip(("images", "labels"), arrays, strict=True):
            name = f"{split}-{kind}{'.' if dotted else '-'}idx{array.ndim}-ubyte"
            content = idx_bytes(array)
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            else:
                (folder / name).write_bytes(content)
    return folder


def write_batches(folder, batches=CIFAR, *, protocol=2, text=bytes, meta=cifar.CLASS_NAMES):
    folder.mkdir(parents=True, exist_ok=True)
    key = (lambda name: name.encode()) if text is bytes else str
    for name, (pixels, labels) in zip(cifar.PYTHON_BATCHES, batches, strict=True):
        content = {key("batch_label"): key(name), key("labels"): labels, key("data"): pixels}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list(meta)}, protocol))
    return folder


def write_binary(folder, batches=CIFAR):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pixels, labels) in zip(cifar.BINARY_BATCHES, batches, strict=True):
        (folder / name).write_bytes(np.column_stack([np.array(labels, np.uint8), pixels]).tobytes())
    return folder


def write_npz(path, **changes):
    x = np.concatenate([pixels for pixels, _ in CIFAR]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    y = np.concatenate([labels for _, labels in CIFAR])
    arrays = {"x_train": x[:20], "y_train": y[:20], "x_test": x[20:], "y_test": y[20:], **changes}
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


def field(number, content):
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number * 8 + 2, *length, size]) + content


def example(png, label):
    number = field(3, field(1, bytes([label])))
    image = field(1, field(1, png))
    entries = ((b"label", number), (b"image", image))
    return field(1, b"".join(field(1, field(1, name) + field(2, value)) for name, value in entries))


def encoded(pixels, kind="PNG"):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def record_bytes(records):
    def check_sum(part):
        content = np.frombuffer(part, np.uint8)
        return tfrecord.masked_crc32c(content, np.array([0]), np.array([len(part)])).astype("<u4").tobytes()

    framed = ((struct.pack("<Q", len(record)), record) for record in records)
    return b"".join(size + check_sum(size) + record + check_sum(record) for size, record in framed)


def write_tfds(root, file_format="tfrecord", *, changes=None, **info):
    """Prepares FASHION as TFDS does, training split in two shards; `changes`: records of the first shard."""
    folder = root / "fashion_mnist" / "3.0.1"
    folder.mkdir(parents=True)
    shards = {"train": [[], []], "test": [[]]}
    for split, (images, labels) in zip(("train", "test"), FASHION.values(), strict=True):
        for i, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            shards[split][i % len(shards[split])].append(example(encoded(pixels), int(label)))
    splits = [{"name": name, "shardLengths": [str(len(part)) for part in parts]} for name, parts in shards.items()]
    for number, record in (changes or {}).items():
        shards["train"][0][number] = record
    for name, parts in shards.items():
        for i, part in enumerate(parts):
            path = folder / f"fashion_mnist-{name}.{file_format}-{i:05d}-of-{len(parts):05d}"
            write_shard(path, part, file_format)
    description = {"name": "fashion_mnist", "version": "3.0.1", "fileFormat": file_format, "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps({**description, **info}))
    (folder / "label.labels.txt").write_text("\n".join(idx.CLASS_NAMES))
    return folder


def write_shard(path, records, file_format):
    if file_format == "tfrecord":
        path.write_bytes(record_bytes(records))
        return
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def write_radio(path, content=None, protocol=2):
    path.write_bytes(pickle.dumps(RADIO if content is None else content, protocol))
    return path


# --- load ---


def test_unknown_name_and_options_are_named(tmp_path):
    fails("mnist", None, "radioml, fashion_mnist, cifar10", "'mnist'")
    fails("radioml", None, "'windows'", "windows_per_key", windows=3)
    fails("radioml", tmp_path, "'seed'", "min_snr", seed=3)
    fails("cifar10", None, "'min_snr'", min_snr=3)
    fails("radioml", None, "min_snr", min_snr=19)


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
def test_nothing_found_says_what_to_do(name, tmp_path):
    searched = tmp_path / "home" / ".cache" / "d2djax" / name
    fails(name, None, searched, "dataset_info.json", f"d2djax download {name} --data-dir ~/.cache/d2djax")
    fails(name, tmp_path / "none", tmp_path / "none", "(missing)", f"--data-dir {tmp_path / 'none'}")
    fails("fashion_mnist", None, "dataset-fashion-mnist", tmp_path / "debian")


@pytest.mark.parametrize("found", ["nothing", "a file"])
def test_a_misspelt_folder_of_data_is_said(tmp_path, monkeypatch, found):
    write_idx(tmp_path / "debian")
    if found == "a file":
        (tmp_path / "dtaa").write_text("")
    monkeypatch.setenv("D2DJAX_DATA", str(tmp_path / "dtaa"))
    fails("fashion_mnist", None, f"$D2DJAX_DATA={tmp_path / 'dtaa'}: expected a folder; found {found}")


def test_search_order(tmp_path, monkeypatch):
    expected = data.load("fashion_mnist", write_idx(tmp_path / "debian"))
    assert same(data.load("fashion_mnist"), expected)
    write_tfds(tmp_path / "home" / "tensorflow_datasets")
    assert "tensorflow_datasets" in data.load("fashion_mnist").source
    # Where TensorFlow Datasets itself would look.
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    assert same(data.load("fashion_mnist"), expected)
    write_tfds(tmp_path / "prepared")
    assert str(tmp_path / "prepared") in data.load("fashion_mnist").source
    write_idx(tmp_path / "home" / ".cache" / "d2djax" / "fashion_mnist")
    assert ".cache" in data.load("fashion_mnist").source
    monkeypatch.setenv("D2DJAX_DATA", str(tmp_path / "mine"))
    write_idx(tmp_path / "mine")
    assert str(tmp_path / "mine") in data.load("fashion_mnist").source
    (write_idx(tmp_path / "mine" / "fashion_mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    fails("fashion_mnist", None, "t10k-labels-idx1-ubyte")


def test_radioml_is_made_in_process():
    made = data.load("radioml", windows_per_key=1, min_snr=10, modulations=["QPSK", "BPSK"], seed=1)
    assert (made.x.shape, made.x.dtype, made.y.dtype) == ((10, 2, 128), np.float32, np.int32)
    assert made.class_names == ("BPSK", "QPSK") and made.num_classes == 2
    fails("radioml", None, "'FM'", modulations=["FM"])


# --- Fashion-MNIST, IDX ---


@pytest.mark.parametrize("options", [{}, {"packed": False}, {"dotted": True}, {"packed": False, "dotted": True}])
def test_idx_layouts(options, tmp_path):
    loaded = data.load("fashion_mnist", write_idx(tmp_path / "fashion_mnist", **options))
    assert np.array_equal(loaded.x[..., 0], np.concatenate([images for images, _ in FASHION.values()]))
    assert loaded.y.tolist() == [*range(10), 0, 1, *range(5)]
    assert (loaded.x.dtype, loaded.y.dtype, loaded.x.shape[3]) == (np.uint8, np.int32, 1)
    assert same(data.load("fashion_mnist", str(tmp_path)), loaded)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_idx_cut_anywhere(packed, name, tmp_path):
    path = write_idx(tmp_path, packed=packed) / (f"{name}.gz" if packed else name)
    content = path.read_bytes()
    for size in {*range(0, len(content), max(1, len(content) // 40)), 3, 4, 15, 16, len(content) - 1}:
        if size < len(content):
            path.write_bytes(content[:size])
            fails("fashion_mnist", tmp_path, path)


IMAGES, LABELS = FASHION["train"]
HUGE = struct.pack(">IIII", 2051, 2**32 - 1, 2**32 - 1, 2**32 - 1)


@pytest.mark.parametrize(
    ("kind", "content", "word"),
    [
        ("images", idx_bytes(LABELS), "found 2049"),
        ("images", idx_bytes(IMAGES, code=13), "expected magic number 2051"),
        ("images", idx_bytes(IMAGES) + b"\0", "found more"),
        ("images", idx_bytes(IMAGES[:, :27]), "(12, 27, 28)"),
        ("images", idx_bytes(IMAGES[:0]), "(0, 28, 28)"),
        ("images", HUGE + bytes(100), "found only 100"),
        ("images", b"\x1f\x8b" + bytes(20), "damage"),
        ("images", gzip.compress(idx_bytes(IMAGES)) + b"rest", "damage"),
        ("labels", idx_bytes(LABELS[:-1]), "expected 12 labels"),
        ("labels", idx_bytes(LABELS + np.uint8(1)), "found 10"),
    ],
)
def test_idx_damage(kind, content, word, tmp_path):
    path = write_idx(tmp_path, packed=False) / f"train-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
    path.write_bytes(content)
    fails("fashion_mnist", tmp_path, path, word)


# --- CIFAR-10 ---


def test_cifar_layouts_agree(tmp_path):
    expected = data.load("cifar10", write_npz(tmp_path / "cifar10.npz"))
    assert expected.x.shape == (24, 32, 32, 3) and expected.y[:4].tolist() == [0, 9, 0, 3]
    assert expected.x[1, 2, 3].tolist() == CIFAR[0][0][1].reshape(3, 32, 32)[:, 2, 3].tolist()
    for protocol in range(6):
        for text in (bytes, str):
            folder = tmp_path / f"{protocol}{text.__name__}"
            assert same(data.load("cifar10", write_batches(folder, protocol=protocol, text=text)), expected)
    write_binary(tmp_path / "b" / "cifar-10-batches-bin")
    write_batches(tmp_path / "p" / "cifar-10-batches-py")
    for place in ("b", "b/cifar-10-batches-bin", "p"):
        assert same(data.load("cifar10", tmp_path / place), expected)
    for place, archive in (("p", "cifar-10-python.tar.gz"), ("b", "cifar-10-binary.tar.gz")):
        (tmp_path / f"{place}tar").mkdir()
        with tarfile.open(tmp_path / f"{place}tar" / archive, "w:gz") as file:
            file.add(tmp_path / place, ".")
        assert same(data.load("cifar10", tmp_path / f"{place}tar"), expected)
        assert same(data.load("cifar10", tmp_path / f"{place}tar" / archive), expected)


PIXELS = CIFAR[0][0]


@pytest.mark.parametrize(
    ("pixels", "labels", "words"),
    [
        (PIXELS, [1, 2, 3, 10], ["found 10"]),
        (PIXELS, [1, 2, 3, -1], ["found -1"]),
        (PIXELS, [1, 2, 3, 10**30], ["labels 0..9"]),
        (PIXELS, [1, 2, 3], ["4 images"]),
        (PIXELS, [1, 2, 3, 0.5], ["whole numbers"]),
        (PIXELS, "1234", ["whole numbers"]),
        (PIXELS.astype(np.int16), [1, 2, 3, 4], ["int16"]),
        (PIXELS[:, :-1], [1, 2, 3, 4], ["(4, 3071)"]),
        (PIXELS.ravel(), [1, 2, 3, 4], ["(12288,)"]),
        (PIXELS[:0], [], []),
        (None, [1, 2, 3, 4], ["NoneType"]),
    ],
)
def test_cifar_bad_batch(pixels, labels, words, tmp_path):
    write_batches(tmp_path, [(pixels, labels), *CIFAR[1:]])
    fails("cifar10", tmp_path, tmp_path / "data_batch_1", *words)


def test_cifar_other_damage(tmp_path):
    folder = write_batches(tmp_path / "names", meta=cifar.CLASS_NAMES[::-1])
    fails("cifar10", folder, "batches.meta", "truck")
    (write_batches(tmp_path / "less") / "data_batch_3").unlink()
    fails("cifar10", tmp_path / "less", "data_batch_3 not found")
    path = write_binary(tmp_path / "bin") / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    fails("cifar10", tmp_path / "bin", path, "3073")
    path.write_bytes(b"")
    fails("cifar10", tmp_path / "bin", path, "0 images")
    path.write_bytes(bytes([10]) + bytes(3072))
    fails("cifar10", tmp_path / "bin", path, "found 10")


def test_cifar_damaged_archive(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        file.add(write_batches(tmp_path / "cifar-10-batches-py"), "cifar-10-batches-py")
    content = path.read_bytes()
    for size in range(0, len(content) - 2000, len(content) // 15):
        path.write_bytes(content[:size])
        fails("cifar10", path, path)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"x_train": None}, "x_train"),
        ({"x_train": np.zeros((20, 32, 32, 3))}, "float64"),
        ({"x_test": np.zeros((4, 3, 32, 32), np.uint8)}, "(4, 3, 32, 32)"),
        ({"y_test": np.zeros(4)}, "float64"),
        ({"y_test": np.full(4, 10)}, "found 10"),
        ({"y_test": np.zeros(3, int)}, "4 images"),
        ({"y_test": np.array([{}] * 4)}, "damage"),
        ({"class_names": np.array(["cat"])}, "cat"),
    ],
)
def test_cifar_bad_npz(changes, word, tmp_path):
    path = write_npz(tmp_path / "cifar10.npz", **changes)
    fails("cifar10", tmp_path, path, word)


def test_cifar_cut_npz(tmp_path):
    path = write_npz(tmp_path / "cifar10.npz")
    content = path.read_bytes()
    for size in range(0, len(content), len(content) // 10):
        path.write_bytes(content[:size])
        fails("cifar10", path, path)


# --- TFDS ---


def test_check_sum_is_crc32c():
    content = np.frombuffer(b"123456789" + bytes(32), np.uint8)
    # Published: 123456789 -> e3069283; 32 zero bytes -> 8a9136aa (RFC 3720, B.4); nothing -> 0.
    crc = np.array([0xE3069283, 0x8A9136AA, 0], np.uint32)
    expected = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    found = tfrecord.masked_crc32c(content, np.array([0, 9, 3]), np.array([9, 32, 0]))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_tfds_layouts(file_format, tmp_path):
    folder = write_tfds(tmp_path, file_format)
    expected = data.load("fashion_mnist", write_idx(tmp_path / "idx"))
    order = [*range(0, 12, 2), *range(1, 12, 2), *range(12, 17)]
    for place in (folder, folder.parent, tmp_path):
        loaded = data.load("fashion_mnist", place)
        assert np.array_equal(loaded.x, expected.x[order]) and np.array_equal(loaded.y, expected.y[order])
    assert loaded.class_names == expected.class_names
    (folder.parent / "2.0.0").mkdir()
    (folder.parent / "2.0.0" / "dataset_info.json").write_text("{}")
    assert "3.0.1" in data.load("fashion_mnist", tmp_path).source


def test_what_tensorflow_datasets_prepared_is_read_as_it_reads_it(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core import registered

    with registered.skip_registration():

        class FashionMnist(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("3.0.1")

            def _info(self):
                label = tfds.features.ClassLabel(names=idx.CLASS_NAMES)
                features = {"image": tfds.features.Image(shape=(28, 28, 1)), "label": label}
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

            def _split_generators(self, _):
                parts = zip(("train", "test"), FASHION.values(), strict=True)
                return {name: self._generate_examples(*part) for name, part in parts}

            def _generate_examples(self, images, labels):
                # Images that are already PNG are written without TensorFlow.
                for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
                    yield number, {"image": io.BytesIO(encoded(pixels)), "label": int(label)}

    builder = FashionMnist(data_dir=tmp_path, file_format="array_record")
    builder.download_and_prepare()
    loaded = data.load("fashion_mnist", tmp_path)
    theirs = [*builder.as_data_source("train"), *builder.as_data_source("test")]
    np.testing.assert_array_equal(loaded.x, np.stack([one["image"] for one in theirs]))
    np.testing.assert_array_equal(loaded.y, [one["label"] for one in theirs])


GOOD = encoded(IMAGES[0])


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff" * 30,
        example(GOOD, 10),
        example(GOOD[:200], 1),
        example(b"", 1),
        example(encoded(IMAGES[0], "JPEG"), 1),
        example(encoded(IMAGES[0][:27]), 1),
        example(encoded(np.stack([IMAGES[0]] * 3, -1)), 1),
        example(GOOD, 1)[:-5],
    ],
)
def test_tfds_bad_record(file_format, record, tmp_path):
    folder = write_tfds(tmp_path, file_format, changes={1: record})
    fails("fashion_mnist", tmp_path, folder / f"fashion_mnist-train.{file_format}-00000-of-00002", "record 1")


def test_tfrecord_cut_or_flipped(tmp_path):
    path = write_tfds(tmp_path) / "fashion_mnist-test.tfrecord-00000-of-00001"
    content = path.read_bytes()
    for size in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:size])
        fails("fashion_mnist", tmp_path, path)
    for place in [*range(0, 20, 3), *range(20, len(content), len(content) // 20), len(content) - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        fails("fashion_mnist", tmp_path, path)
    path.write_bytes(content + record_bytes([example(GOOD, 1)]))
    fails("fashion_mnist", tmp_path, path, "expected 5 records", "found 6")
    path.unlink()
    fails("fashion_mnist", tmp_path, path, "missing")


def test_array_record_damage(tmp_path):
    path = write_tfds(tmp_path, "array_record") / "fashion_mnist-test.array_record-00000-of-00001"
    content = path.read_bytes()
    for size in (0, 1000, 65536, 70000, len(content) - 65536, len(content) - 1):
        path.write_bytes(content[:size])
        fails("fashion_mnist", tmp_path, path)
    path.unlink()
    write_shard(path, [example(GOOD, 1)] * 6, "array_record")
    fails("fashion_mnist", tmp_path, path, "expected 5 records", "found 6")


@pytest.mark.parametrize(
    ("info", "word"),
    [
        ({"name": "mnist"}, "found mnist"),
        ({"fileFormat": "parquet"}, "parquet"),
        ({"splits": []}, "train"),
        ({"splits": 3}, "train"),
        ({"splits": [{"name": name, "shardLengths": []} for name in ("train", "test")]}, "found none"),
        ({"splits": [{"name": name, "shardLengths": ["x"]} for name in ("train", "test")]}, "'x'"),
    ],
)
def test_tfds_bad_description(info, word, tmp_path):
    folder = write_tfds(tmp_path, **info)
    fails("fashion_mnist", tmp_path, folder / "dataset_info.json", word)
    (folder / "dataset_info.json").write_text("{")
    fails("fashion_mnist", tmp_path, folder / "dataset_info.json", "JSON")


def test_tfds_other_classes(tmp_path):
    folder = write_tfds(tmp_path)
    (folder / "label.labels.txt").write_text("a\nb")
    fails("fashion_mnist", tmp_path, folder / "label.labels.txt")
    fails("cifar10", folder, "expected the data set cifar10", "fashion_mnist")


# --- RadioML ---


@pytest.mark.parametrize("protocol", range(6))
def test_radio_protocols_and_order(protocol, tmp_path):
    path = write_radio(tmp_path / "one.pkl", protocol=protocol)
    loaded = data.load("radioml", path)
    assert loaded.class_names == ("8PSK", "BPSK", "QPSK") and loaded.y.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    order = [RADIO[mod, snr] for mod in loaded.class_names for snr in (-4, 2)]
    assert np.array_equal(loaded.x, np.concatenate(order)) and loaded.x.dtype == np.float32
    assert same(data.load("radioml", tmp_path), loaded)


def test_radio_options(tmp_path):
    path = write_radio(tmp_path / rml2016.FILE)
    write_radio(tmp_path / "other.pkl", {})
    some = data.load("radioml", tmp_path, min_snr=0, modulations=["QPSK", "8PSK"])
    assert np.array_equal(some.x, np.concatenate([RADIO["8PSK", 2], RADIO["QPSK", 2]]))
    assert some.class_names == ("8PSK", "QPSK") and some.y.tolist() == [0] * 3 + [1] * 3
    fails("radioml", path, path, "'AM'", "8PSK, BPSK, QPSK", modulations=["AM"])
    fails("radioml", path, path, "modulations", modulations=[])
    fails("radioml", path, path, "at 4 dB", min_snr=4)
    path.rename(tmp_path / "third.pkl")
    fails("radioml", tmp_path, "other.pkl, third.pkl")
    fails("radioml", tmp_path / "nowhere", rml2016.FILE)


WINDOWS = RADIO["QPSK", 2]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({("QPSK", 2): np.where(np.arange(128) == 5, np.nan, WINDOWS)}, "finite"),
        ({("QPSK", 2): np.full((1, 2, 128), -np.inf, np.float32)}, "finite"),
        ({("QPSK", 2): np.full((1, 2, 128), 1e300)}, "finite"),
        ({("QPSK", 2): WINDOWS[:, :1]}, "(3, 1, 128)"),
        ({("QPSK", 2): WINDOWS[0]}, "(2, 128)"),
        ({("QPSK", 2): WINDOWS[:0]}, "(0, 2, 128)"),
        ({("QPSK", 2): WINDOWS.astype(np.int8)}, "int8"),
        ({("QPSK", 2): WINDOWS.astype(complex)}, "complex128"),
        ({("QPSK", 2): WINDOWS.astype(object)}, "not numeric"),
        ({("QPSK", 2): WINDOWS.astype(str)}, "not numeric"),
        ({("QPSK", 2): np.zeros(3, [("a", "f4")])}, "not numeric"),
        ({("QPSK", 2): WINDOWS.astype("datetime64[s]")}, "not numeric"),
        ({("QPSK", 2): [1.0, 2.0]}, "list"),
        ({("QPSK", 2): [[1.0]]}, "nested"),
        ({("QPSK", "2"): WINDOWS}, "keys (modulation, SNR)"),
        ({"QPSK": WINDOWS}, "keys (modulation, SNR)"),
        ({b"a": 1, "a": 2}, "same key twice"),
        ({}, "empty"),
        ([WINDOWS], "a list"),
        ({("QPSK", 2): OrderedDict()}, "collections.OrderedDict"),
    ],
)
def test_radio_bad_content(content, word, tmp_path):
    path = write_radio(tmp_path / "one.pkl", content, protocol=4)
    fails("radioml", path, path, word)


def test_radio_arrays_of_every_order(tmp_path):
    for i, change in enumerate([np.asfortranarray, lambda x: x.astype(">f4"), lambda x: x.astype(np.float64)]):
        content = {key: change(windows) for key, windows in RADIO.items()}
        for protocol in (0, 2, 5):
            path = write_radio(tmp_path / f"{i}{protocol}.pkl", content, protocol)
            assert same(data.load("radioml", path), data.load("radioml", write_radio(tmp_path / "plain.pkl")))


# --- pickles that would run code ---


def short(text):
    return b"\x8c" + bytes([len(text)]) + text


def pickles_that_call(marker):
    """Name -> pickle that would create `marker`, and what the refusal must mention."""
    command = f"touch {marker}".encode()
    call = b"(S'" + command + b"'\ntR."
    stacked = b"\x80\x04" + short(b"os") + short(b"system") + b"\x93" + short(command) + b"\x85R."
    memmap = f"cnumpy\nmemmap\n(S'{marker}'\nS'u1'\nS'w+'\nI0\n(I1\nttR.".encode()
    return {
        "global": (b"cos\nsystem\n" + call, "os.system"),
        "posix": (b"cposix\nsystem\n" + call, "posix.system"),
        "stack_global": (stacked, "os.system"),
        "inst": (b"(S'" + command + b"'\nios\nsystem\n.", "os.system"),
        "obj": (b"(cos\nsystem\nS'" + command + b"'\no.", "os.system"),
        "eval": (f'cbuiltins\neval\n(S\'open("{marker}", "w")\'\ntR.'.encode(), "builtins.eval"),
        "dotted": (b"cnumpy\nf2py.os.system\n" + call, "numpy.f2py.os.system"),
        "module": (b"cnumpy.f2py.os\nsystem\n" + call, "numpy.f2py.os.system"),
        "memmap": (memmap, "numpy.memmap"),
        "getattr": (b"c__builtin__\ngetattr\n(cos\nsystem\ntR.", "getattr"),
        "codecs": (b"c_codecs\nopen\n" + f"(S'{marker}'\nS'w'\ntR.".encode(), "_codecs.open"),
        "encode": (b"c_codecs\nencode\n(Vabc\nVrot13\ntR.", "_codecs.encode"),
        "attribute": (b"cnumpy\nndarray.tofile\n" + call, "numpy.ndarray.tofile"),
        "newobj": (b"\x80\x02cnumpy\nndarray\n(I9\nt\x81.", "opcode 0x81"),
        "newobj_ex": (b"\x80\x04cnumpy\nndarray\n(I9\nt}\x92.", "opcode 0x92"),
        "ndarray": (b"cnumpy\nndarray\n((I1000000\nI1000000\nttR.", "unusual"),
        "subtype": (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.", "another type"),
        "object": (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "'O8'"),
        "fields": (
            b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nN(S'a'\nt}I-1\nI-1\nI0\ntb.",
            "plain number",
        ),
        "ext1": (b"\x80\x02\x82\x01.", "opcode 0x82"),
        "ext2": (b"\x80\x02\x83\x01\x00.", "opcode 0x83"),
        "ext4": (b"\x80\x02\x84\x01\x00\x00\x00.", "opcode 0x84"),
        "persistent": (b"Pabc\n.", "opcode 0x50"),
        "persistent_binary": (b"NQ.", "opcode 0x51"),
        "buffer": (b"\x80\x05\x97.", "opcode 0x97"),
        "build_function": (b"cnumpy\ndtype\n}S'__doc__'\nS'x'\nsb.", "state"),
        "build_dict": (b"}}S'a'\nI1\nsb.", "state"),
        "build_slots": (b"cnumpy\ndtype\n(N}S'__defaults__'\n(I1\ntstb.", "state"),
        "call_string": (b"S'os.system'\n" + call, "not a function"),
        "call_list": (b"cnumpy\ndtype\n]S'f4'\naR.", "not a function"),
        "leftover": (b"}S'a'\ncnumpy\ndtype\ns.", "function"),
        "no_contents": (
            b"}S'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntRs.",
            "without contents",
        ),
    }


@pytest.mark.parametrize("case", pickles_that_call("x"))
def test_pickle_runs_nothing(case, tmp_path):
    marker = tmp_path / "marker"
    content, word = pickles_that_call(marker)[case]
    path = tmp_path / "one.pkl"
    for inside in (content, b"}S'a'\n" + content[:-1] + b"s."):
        path.write_bytes(inside)
        if case in ("leftover", "no_contents") and inside is not content:
            continue
        fails("radioml", path, path, *([] if inside.startswith(b"}S'a'\n\x80") else [word]))
        assert not marker.exists()
    batches = write_batches(tmp_path / "batches")
    (batches / "test_batch").write_bytes(content)
    fails("cifar10", batches, batches / "test_batch", word)
    assert not marker.exists()


def array_pickle(shape, content):
    state = f"(I1\n({''.join(f'I{size}{chr(10)}' for size in shape)}tcnumpy\ndtype\n(S'f4'\nI0\nI1\ntR".encode()
    head = b"}S'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    return head + state + b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n" + content + b"tbs."


@pytest.mark.parametrize(
    "content",
    [
        array_pickle([2**40, 2**40], b"S'abcd'\n"),
        array_pickle([-1], b"S'abcd'\n"),
        array_pickle([1], b"N"),
        array_pickle([1], b"]"),
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"abc",
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"abc",
        b"I" + b"9" * 100_000 + b"\n.",
        b"]" * 300_000 + b"a" * 299_999 + b".",
        b"}" + b"(" * 200_000 + b"t" * 200_000 + b"I1\ns.",
        b"})" + b"\x85" * 200_000 + b"I1\ns.",
        b"}(" * 100_000 + b".",
        b"}S'a'\n]p0\ng0\nas.",
        b"}" + pickle.dumps(RADIO)[1:],
        pickle.dumps(RADIO) + b"x",
        b".",
        b"",
        b"t.",
        b"\xff\xfe not a pickle",
        b"hello world\n" * 5,
    ],
    ids=range(21),
)
def test_pickle_false_claims(content, tmp_path):
    path = tmp_path / "one.pkl"
    path.write_bytes(content)
    fails("radioml", path, path)


@pytest.mark.parametrize("protocol", range(6))
def test_pickle_cut_anywhere(protocol, tmp_path):
    path = tmp_path / "one.pkl"
    content = pickle.dumps({("QPSK", 2): WINDOWS}, protocol)
    for size in {
        *range(120),
        *range(0, len(content), len(content) // 50),
        *range(len(content) - 60, len(content)),
    }:
        path.write_bytes(content[:size])
        fails("radioml", path, path)


# --- fuzz ---


def damaged(content):
    flips = st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)
    return st.tuples(flips, st.one_of(st.none(), st.integers(0, len(content)))).map(lambda it: apply(content, *it))


def apply(content, flips, size):
    changed = bytearray(content)
    for place, value in flips:
        changed[place] = value
    return bytes(changed[:size])


def valid_or_refused(name, place):
    try:
        loaded = data.load(name, place)
    except DataError as error:
        assert str(place) in str(error)
        return
    assert len(loaded.x) == len(loaded.y) > 0 and 0 <= loaded.y.min() <= loaded.y.max() < loaded.num_classes
    assert np.isfinite(loaded.x).all()


@pytest.fixture(scope="module")
def fuzz_folder(tmp_path_factory):
    return write_idx(tmp_path_factory.mktemp("fuzz"), packed=False)


SMALL_IDX = idx_bytes(IMAGES)[: 16 + 784 * 12]
SMALL_PICKLE = pickle.dumps({("QPSK", 2): WINDOWS[:1], ("BPSK", 0): WINDOWS[1:2]}, 2)
OLD_PICKLE = pickle.dumps({("QPSK", 2): WINDOWS[:1, :, ::-1]}, 0)


@given(st.one_of(damaged(SMALL_IDX), damaged(SMALL_IDX[:16]), damaged(gzip.compress(SMALL_IDX))))
@settings(max_examples=150, deadline=None)
def test_fuzz_idx(fuzz_folder, content):
    (fuzz_folder / "train-images-idx3-ubyte").write_bytes(content)
    valid_or_refused("fashion_mnist", fuzz_folder)


HEAD = 260  # the opcodes before the first array's bytes, where a flip does most


@given(
    st.one_of(
        damaged(SMALL_PICKLE),
        damaged(SMALL_PICKLE[:HEAD]).map(lambda head: head + SMALL_PICKLE[HEAD:]),
        damaged(OLD_PICKLE[:HEAD]).map(lambda head: head + OLD_PICKLE[HEAD:]),
    )
)
@settings(max_examples=400, deadline=None)
def test_fuzz_pickle(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.pkl"
    path.write_bytes(content)
    valid_or_refused("radioml", path)


PIECES = [
    *(bytes([code]) for code in b".()]}tlda\x85\x86\x87\x88\x89Nesub02R\x81\x94oqh"),
    *(f"cnumpy\n{name}\n".encode() for name in ("ndarray", "dtype", "memmap")),
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy._core.numeric\n_frombuffer\n",
    *(
        b"c_codecs\nencode\n",
        b"S'f4'\n",
        b"S'<'\n",
        b"I1\n",
        b"I0\n",
        b"Vlatin1\n",
        b"p0\n",
        b"g0\n",
        b"U\x04abcd",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=25))
@settings(max_examples=600, deadline=None)
def test_fuzz_opcodes(pieces):
    """Programs of known opcodes build plain values or are refused."""
    try:
        content = pickles.load_dict(io.BytesIO(b"}(" + b"".join(pieces) + b"u."), "fuzz")
    except DataError:
        return
    for value in content.values():
        assert type(value) in (int, float, bool, str, bytes, type(None), list, tuple, np.ndarray)


# --- the data of the project ---


@needs_shared
def test_shared_fashion_mnist():
    fashion = data.load("fashion_mnist", SHARED / "fashion_mnist_idx_tiny")
    assert fashion.x.shape == (800, 28, 28, 1) and fashion.y[:5].tolist() == [9, 0, 0, 3, 0]


@needs_shared
@pytest.mark.parametrize(("name", "count"), [("fashion_mnist", 2000), ("cifar10", 700)])
def test_shared_tfds(name, count):
    left = data.load(name, SHARED / "tfds" / "array_record")
    right = data.load(name, SHARED / "tfds" / "tfrecord")
    assert same(left, right) and len(left.y) == count


@needs_shared
def test_shared_cifar():
    folder = SHARED / "cifar10"
    python = data.load("cifar10", folder / "cifar-10-batches-py")
    for place in ("cifar-10-batches-bin", "cifar-10-python_tiny.tar.gz"):
        assert same(data.load("cifar10", folder / place), python)
    with np.load(folder / "tiny_expected.npz") as expected:
        assert np.array_equal(python.y, np.concatenate([expected["y_train"], expected["y_test"]]))
        assert np.array_equal(python.x[:20], expected["x_train"])
        assert np.array_equal(python.x[500:520], expected["x_test"])
    assert data.load("cifar10", folder / "cifar10_subset.npz").x.shape == (6000, 32, 32, 3)
    shuffled = data.load("cifar10", SHARED / "tfds" / "tfrecord")
    assert sorted(image.tobytes() for image in shuffled.x) == sorted(image.tobytes() for image in python.x)


@needs_shared
def test_shared_radio():
    folder = SHARED / "rml2016_gr"
    full = data.load("radioml", folder / "rml2016_10a_like.pkl")
    old = data.load("radioml", folder / "rml2016_10a_like_protocol0_tiny.pkl")
    assert full.x.shape == (13200, 2, 128) and full.num_classes == 11 and full.class_names == old.class_names
    assert np.array_equal(full.x.reshape(220, 60, 2, 128)[:, :5].reshape(-1, 2, 128), old.x)
    fails("radioml", folder, "rml2016_10a_like.pkl")
