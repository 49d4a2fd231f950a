"""Pictures found by what they show (S11): embedders of texts and pictures, datasets of pictures, and their routing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pointsman
from embedder_suite import EmbedderConformance, MultimodalEmbedderConformance, picture_file
from pointsman import Document, MultiModalRetriever, Settings, Workspace
from pointsman.embedders import ClipEmbedder, as_embedder, load_embedder
from pointsman.embedders.base_embedder import image_embedder_of
from pointsman.embedders.cached_embedder import CachedEmbedder
from pointsman.embedders.scripted_embedders import ColourEmbedder, HashingEmbedder
from pointsman.retrieval.plan.routers import ImageRouter
from pointsman.tools.errors import InputError, ModelError, UnmetNeedError
from pointsman.values.protocols import Embedder, MultimodalEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")

# ── a pair of ONNX models: colours as words and as pictures ──────────────────────────────────────────────────────────

WORDS = {"[UNK]": (0, 0, 0.2), "red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1), "white": (1, 1, 1)}
PREPROCESSING = {
    "do_resize": True, "size": {"shortest_edge": 8}, "resample": 3, "do_center_crop": True,
    "crop_size": {"height": 8, "width": 8}, "do_rescale": True, "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
}  # fmt: skip


def write_clip(folder: Path, *, output: str = "image_embeds", dimensions: int = 3, **preprocessing: Any) -> Path:
    """Write a text model, which adds the vectors of words, and a picture model, which takes the mean colour."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def save(name: str, nodes: list[Any], inputs: list[Any], result: str, constants: dict[str, Any]) -> None:
        graph = helper.make_graph(
            nodes,
            "tiny",
            inputs,
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, key) for key, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        (folder / "onnx" / name).write_bytes(model.SerializeToString())

    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    save(
        "text_model.onnx",
        [
            helper.make_node("Gather", ["table", "input_ids"], ["states"]),
            helper.make_node("ReduceSum", ["states", "axis"], ["text_embeds"], keepdims=0),
        ],
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
        "text_embeds",
        {"table": np.array(list(WORDS.values()), np.float32), "axis": np.array([1], np.int64)},
    )
    save(
        "vision_model.onnx",
        [
            helper.make_node("ReduceMean", ["pixel_values", "axes"], ["colour"], keepdims=0),
            helper.make_node("MatMul", ["colour", "projection"], [output]),
        ],
        [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        output,
        {"axes": np.array([2, 3], np.int64), "projection": np.eye(3, dimensions, dtype=np.float32)},
    )
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "preprocessor_config.json").write_text(json.dumps({**PREPROCESSING, **preprocessing}))
    return folder


def nearest(embedder: Any, text: str, colours: tuple[str, ...] = ("red", "green", "blue", "white")) -> str:
    pictures = embedder.embed_images([picture_file(colour, "PNG", (37, 21)) for colour in colours])
    return colours[int(np.argmax(pictures @ embedder.embed_queries([text])[0]))]


def test_text_finds_picture_by_clip_in_a_folder(tmp_path: Path) -> None:
    embedder = load_embedder(f"clip:{write_clip(tmp_path / 'tiny')}")
    assert isinstance(embedder, ClipEmbedder)
    assert isinstance(embedder, MultimodalEmbedder)
    assert embedder.dimensions == 3
    assert [nearest(embedder, word) for word in ("red", "blue", "white")] == ["red", "blue", "white"]


def test_pixels_are_cropped_in_the_middle_and_normalised(tmp_path: Path) -> None:
    from PIL import Image

    embedder = ClipEmbedder(write_clip(tmp_path))
    image = Image.new("RGB", (30, 10), "red")
    image.paste("blue", (10, 0, 20, 10))
    data = io.BytesIO()
    image.save(data, "PNG")
    assert np.allclose(embedder.embed_images([data.getvalue()])[0], np.array([-1, -1, 1]) / 3**0.5, atol=0.02)
    full_picture = ClipEmbedder(write_clip(tmp_path / "whole", do_center_crop=False, size={"height": 4, "width": 4}))
    assert full_picture.embed_images([data.getvalue()])[0][0] > 0, "two thirds are red"
    assert full_picture.name != embedder.name


def test_size_of_preprocessing_may_be_a_number(tmp_path: Path) -> None:
    embedder = ClipEmbedder(write_clip(tmp_path, size=16, crop_size=8))
    assert nearest(embedder, "green") == "green"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimensions": 2}, "no shared space: texts have 3 dimensions, pictures 2"),
        ({"output": "pooler_output"}, "no output named image_embeds"),
        ({"image_mean": [0.5]}, "does not say how pictures become the model's input"),
        ({"image_std": [0, 1, 1]}, "image_std is not 0"),
        ({"size": {"shortest_edge": 4}}, "a crop of 8 × 8 pixels exceeds the shorter side, 4"),
        ({"crop_size": {"height": 100_000, "width": 100_000}}, "1 to 1024 pixels"),
        ({"size": None}, "does not say"),
        ({"size": {"longest_edge": 8}, "do_center_crop": False}, "does not say"),
    ],
)
def test_clip_without_shared_space_is_refused_at_construction(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        ClipEmbedder(write_clip(tmp_path, **change))


@pytest.mark.parametrize("file", ["onnx/text_model.onnx", "onnx/vision_model.onnx", "preprocessor_config.json"])
def test_clip_without_a_file_is_refused_at_construction(tmp_path: Path, file: str) -> None:
    (write_clip(tmp_path) / file).unlink()
    with pytest.raises(InputError, match=Path(file).name):
        ClipEmbedder(tmp_path)


def test_family_with_padded_texts_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (write_clip(tmp_path) / "config.json").write_text('{"model_type": "siglip"}')
    with pytest.raises(ModelError, match="infinity:MODEL@URL"):
        ClipEmbedder(tmp_path)


class TestClip(MultimodalEmbedderConformance):
    @pytest.fixture(autouse=True)
    def in_a_folder(self, tmp_path: Path) -> None:
        self.folder = write_clip(tmp_path)

    def make(self) -> MultimodalEmbedder:
        return ClipEmbedder(self.folder)


# ── hostile pictures ─────────────────────────────────────────────────────────────────────────────────────────────────


def png_of(width: int, height: int) -> bytes:
    """A file of 8 kB or less that claims to be a picture of this size."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 8192))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png_of(8000, 8000), "a picture of 8000 × 8000 pixels, more than 60000000 in all"),
        (png_of(200_000, 200_000), "pixels"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "none in PNG, JPEG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "none in PNG, JPEG"),
        (picture_file("red", "PNG", (300, 300))[:200], "damaged picture"),
        (b"", "a damaged picture"),
    ],
)
@pytest.mark.parametrize("kind", ["clip", "colours"])
def test_hostile_picture_is_refused_by_every_embedder(tmp_path: Path, kind: str, data: bytes, reason: str) -> None:
    embedder: Any = {
        "clip": lambda: ClipEmbedder(write_clip(tmp_path)),
        "colours": ColourEmbedder,
    }[kind]()
    with pytest.raises(InputError, match=reason):
        embedder.embed_images([data])


def test_picture_of_one_row_takes_no_more_memory_than_others(tmp_path: Path) -> None:
    import tracemalloc

    embedder = ClipEmbedder(write_clip(tmp_path, size={"shortest_edge": 512}, crop_size=512))
    data = picture_file("red", "PNG", (60_000, 1))
    tracemalloc.start()
    embedder.embed_images([data])
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("images", ["photo.png", b"bytes", [Path("photo.png")], ["photo.png"]])
def test_paths_are_not_opened(images: Any) -> None:
    with pytest.raises(InputError, match=r"not bytes|a list of pictures"):
        ColourEmbedder().embed_images(images)


# ── embedders of other libraries ─────────────────────────────────────────────────────────────────────────────────────


def test_multimodal_embedding_of_llama_index_is_taken_as_it_is() -> None:
    embeddings = pytest.importorskip("llama_index.core.embeddings.multi_modal_base")

    class Colours(embeddings.MultiModalEmbedding):  # type: ignore[misc,name-defined]
        def _get_text_embedding(self, text: str) -> list[float]:
            return [float(value) for value in ColourEmbedder().embed(text)]

        _get_query_embedding = _get_text_embedding

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

        def _get_image_embedding(self, img_file_path: Any) -> list[float]:
            return [float(value) for value in ColourEmbedder().embed_images([img_file_path.read()])[0]]

        async def _aget_image_embedding(self, img_file_path: Any) -> list[float]:
            return self._get_image_embedding(img_file_path)

    embedder = as_embedder(Colours())
    assert isinstance(embedder, MultimodalEmbedder)
    assert nearest(embedder, "a blue door") == "blue"


class OwnEmbedder:
    """Embeds texts and pictures by two methods."""

    def embed(self, text: str) -> list[float]:
        return [float(value) for value in ColourEmbedder().embed(text)]

    def embed_images(self, images: list[bytes]) -> list[list[float]]:
        return [[float(value) for value in row] for row in ColourEmbedder().embed_images(images)]


def test_object_with_two_methods_is_taken_as_it_is() -> None:
    embedder = as_embedder(OwnEmbedder())
    assert nearest(embedder, "white snow") == "white"
    assert image_embedder_of(embedder) is embedder
    assert image_embedder_of(HashingEmbedder()) is None
    assert image_embedder_of(None) is None


def test_cache_of_texts_embeds_pictures_by_what_it_holds(tmp_path: Path) -> None:
    colours = ColourEmbedder()
    assert image_embedder_of(CachedEmbedder(colours, tmp_path)) is colours


class TestTexts(EmbedderConformance):
    """Texts of an embedder of pictures keep what other embedders promise."""

    def make(self) -> Embedder:
        return ColourEmbedder()

    def texts(self) -> list[str]:
        return ["red", "зелёный", "蓝色", "white " * 200]


# ── datasets of pictures ─────────────────────────────────────────────────────────────────────────────────────────────

WITH_COLOURS = Settings(image_embedder="colours")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour, form in (("bus.png", "red", "PNG"), ("sky.jpg", "blue", "JPEG"), ("snow.webp", "white", "WEBP")):
        (folder / name).write_bytes(picture_file(colour, form, (80, 60)))
    return folder


@pytest.fixture
def work(tmp_path: Path, photos: Path) -> Iterator[Workspace]:
    with pointsman.open(tmp_path / "work", settings=WITH_COLOURS, embedder=HashingEmbedder(256)) as workspace:
        workspace.dataset("timetable").add(Document("seven", "The blue bus leaves at seven."))
        workspace.dataset("photos", images=True)
        workspace.index(photos, "photos")
        yield workspace


def test_an_embedder_of_pictures_is_opened_by_its_name(tmp_path: Path, photos: Path) -> None:
    with pointsman.open(tmp_path / "work", image_embedder="colours", embedder=HashingEmbedder(256)) as workspace:
        workspace.dataset("photos", images=True)
        workspace.index(photos, "photos")
        assert sources(workspace.search("something red", datasets=["photos"]))[0] == "bus.png"


def sources(answer: Any) -> list[str]:
    return [str(hit.metadata.get("source", hit.id)) for hit in answer.hits]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("show me a photo of something red", "bus.png"),
        ("a picture of the blue sky", "sky.jpg"),
        ("фотография белого поля", "snow.webp"),
        ("给我看一张蓝色的图片", "sky.jpg"),
        ("when does the blue bus leave", "seven"),
        ("Когда уходит синий автобус?", "seven"),
    ],
)
def test_question_is_routed_to_pictures_or_texts(work: Workspace, question: str, first: str) -> None:
    answer = work.search(question, refuse=False)
    assert sources(answer)[0] == first
    assert len({hit.dataset for hit in answer.hits}) == 1, "the other kind is left out"
    assert answer.degraded == ()


def test_what_was_left_out_is_said(work: Workspace) -> None:
    answer = work.search("when does the blue bus leave", refuse=False)
    assert "nothing asks for a picture; to search photos too, name the datasets" in answer.plan.reason
    assert "asks for a picture: photo" in work.search("a red photo").plan.reason


def test_named_dataset_of_pictures_is_searched_whatever_is_asked(work: Workspace) -> None:
    assert sources(work.search("something red", datasets=["photos"]))[0] == "bus.png"
    answer = work.search("blue", datasets=["timetable", "photos"], refuse=False)
    assert {hit.dataset for hit in answer.hits} == {"timetable", "photos"}


def test_picture_without_words_has_title_source_and_hash(work: Workspace) -> None:
    (hit,) = work.search("red", 1, datasets=["photos"])
    assert hit.text == ""
    assert (hit.metadata["title"], hit.metadata["kind"], hit.metadata["source"]) == ("bus", "picture", "bus.png")
    assert len(hit.metadata["sha256"]) == 64


def test_indexing_again_embeds_only_changed_pictures(
    work: Workspace, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    embed_images = ColourEmbedder.embed_images

    def count_images(self: ColourEmbedder, images: list[bytes]) -> NDArray[np.float32]:
        counts.append(len(images))
        return embed_images(self, images)

    monkeypatch.setattr(ColourEmbedder, "embed_images", count_images)
    assert work.index(photos, "photos").passages.unchanged == 3
    assert counts == []
    (photos / "bus.png").write_bytes(picture_file("yellow"))
    (photos / "sky.jpg").unlink()
    report = work.index(photos, "photos")
    assert (report.passages.updated, report.deleted, counts) == (1, 1, [1])
    assert sources(work.search("something yellow", datasets=["photos"]))[0] == "bus.png"


def test_what_is_no_picture_is_reported_and_left_out(work: Workspace, photos: Path) -> None:
    (photos / "note.md").write_text("A note.")
    (photos / "bomb.png").write_bytes(png_of(30_000, 30_000))
    (photos / "page.png").write_text("<html><body>A page.</body></html>")
    (photos / "text.jpg").write_bytes(b"PK\x03\x04 no archive")
    report = work.index(photos, "photos")
    assert report.passages.unchanged == 3
    reasons = {problem.path: problem.reason for problem in report.problems}
    assert reasons.keys() == {"note.md", "bomb.png", "page.png", "text.jpg"}
    assert "holds pictures; index it into another dataset" in reasons["note.md"]
    assert "900000000 pixels" in reasons["bomb.png"]


def test_failing_model_stores_no_picture_without_its_vector(
    work: Workspace, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "new.png").write_bytes(picture_file("green"))

    def fail(self: ColourEmbedder, images: list[bytes]) -> NDArray[np.float32]:
        raise ModelError("the model is away")

    with monkeypatch.context() as patch:
        patch.setattr(ColourEmbedder, "embed_images", fail)
        with pytest.raises(ModelError, match=r"the model is away; 1 picture is not stored; index again"):
            work.index(photos, "photos")
    assert work.dataset("photos").count() == 3
    assert work.index(photos, "photos").passages.added == 1


def test_dataset_stays_one_of_pictures_when_opened_again(work: Workspace, tmp_path: Path, photos: Path) -> None:
    work.close()
    with pointsman.open(tmp_path / "work", settings=WITH_COLOURS, embedder=HashingEmbedder(256)) as workspace:
        assert sources(workspace.search("a red photo"))[0] == "bus.png"
        assert workspace.index(photos, "photos").passages.unchanged == 3
        with pytest.raises(UnmetNeedError, match="made for pictures"):
            workspace.dataset("photos", images=False)
        with pytest.raises(UnmetNeedError, match="made for texts"):
            workspace.dataset("timetable", images=True)


def test_without_an_embedder_of_pictures_texts_are_answered_and_pictures_name_the_setting(
    work: Workspace, tmp_path: Path, photos: Path
) -> None:
    work.close()
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder(256)) as workspace:
        assert sources(workspace.search("when does the blue bus leave", refuse=False)) == ["seven"]
        with pytest.raises(UnmetNeedError, match="set image_embedder to clip:DIRECTORY"):
            workspace.search("a red photo")
        with pytest.raises(UnmetNeedError, match="POINTSMAN_IMAGE_EMBEDDER"):
            workspace.dataset("more", images=True)
        (photos / "new.png").write_bytes(picture_file("green"))
        with pytest.raises(UnmetNeedError, match="image_embedder"):
            workspace.index(photos, "photos")


def test_documents_of_pictures_need_their_vectors(work: Workspace) -> None:
    dataset = work.dataset("photos")
    with pytest.raises(InputError, match=r"vectors=dataset\.embedder\.embed_images"):
        dataset.add(Document("caption", "A red bus."))
    embedder: Any = dataset.embedder
    dataset.add(Document("rose", "A rose.", {"title": "rose"}), vectors=embedder.embed_images([picture_file("red")]))
    assert dataset.search("rose").hits[0].id == "rose"
    assert dataset.embed() == 0
    with pytest.raises(InputError, match="a new title would be embedded in their place"):
        dataset.set_metadata({"rose": {"title": "tulip"}})
    dataset.set_metadata({"rose": {"seen": True}})
    assert dataset.search("red", filters={"seen": True}).hits[0].id == "rose"


def test_pictures_cannot_be_a_dataset_of_words() -> None:
    with pytest.raises(InputError, match="found by vectors"):
        pointsman.Dataset("photos", indexing_technique="keyword", embedder=ColourEmbedder(), images=True)
    with pytest.raises(UnmetNeedError, match="no embedder of pictures"):
        pointsman.Dataset("photos", embedder=HashingEmbedder(), images=True)


def test_embedder_of_the_workspace_serves_pictures_too(tmp_path: Path, photos: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=ColourEmbedder()) as workspace:
        workspace.dataset("photos", images=True)
        workspace.index(photos, "photos")
        assert sources(workspace.search("blue"))[0] == "sky.jpg"


def test_multimodal_retriever_finds_pictures_by_what_they_show(work: Workspace) -> None:
    retriever = MultiModalRetriever(work.dataset("timetable").retriever(), work.dataset("photos").retriever())
    assert retriever.retrieve("a white picture")[0].metadata["source"] == "snow.webp"
    assert retriever.retrieve("when does the bus leave")[0].id == "seven"
    datasets: Any = (work.dataset("timetable"), work.dataset("photos"))
    with pytest.raises(InputError, match=r"give its retriever\(\)"):
        MultiModalRetriever(*datasets)


def test_router_returns_all_datasets_of_one_kind(work: Workspace) -> None:
    texts, pictures = work.dataset("timetable"), work.dataset("photos")
    assert ImageRouter().route("a photo", [texts, pictures]) == [pictures]
    assert ImageRouter().route("a photo", [texts, work.dataset("other")]) == [texts, work.dataset("other")]
    assert work.route("a red photo").to_dict()["plan"]["datasets"] == ["photos"]


@pytest.mark.parametrize("value", ["hashing", "clip:", "jina:m@https://host/v1"])
def test_setting_names_only_embedders_of_pictures(value: str) -> None:
    with pytest.raises(InputError, match="image_embedder"):
        Settings(image_embedder=value)
