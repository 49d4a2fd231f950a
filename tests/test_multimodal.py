"""Pictures found by what they show (S11): embedders of texts and pictures, datasets of pictures, and their routing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
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
from pointsman.tools.errors import InputError, MissingDependencyError, ModelError, UnmetNeedError
from pointsman.values.protocols import Embedder, MultimodalEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")

# ── CLIP, by a fake of the package, which brings PyTorch ─────────────────────────────────────────────────────────────


class FakeClip:
    """A fake of `sentence_transformers.SentenceTransformer` with a CLIP model: colours as words and as pictures."""

    dimensions = 3

    def __init__(self, name_or_path: str, *, device: str | None = None) -> None:
        if name_or_path == "missing":
            raise OSError("no such model")

    def get_embedding_dimension(self) -> int:
        return 3

    def encode(
        self, batch: list[Any], *, batch_size: int, convert_to_numpy: bool, show_progress_bar: bool
    ) -> NDArray[np.float32]:
        texts = [item for item in batch if isinstance(item, str)]
        if texts:
            return np.array([ColourEmbedder().embed(text)[:3] for text in texts])
        colours = [np.asarray(image).reshape(-1, 3).mean(axis=0) - 128 for image in batch]
        return np.array(colours, np.float32)[:, : self.dimensions]


@pytest.fixture
def clip(monkeypatch: pytest.MonkeyPatch) -> type[FakeClip]:
    package = ModuleType("sentence_transformers")
    monkeypatch.setattr(package, "SentenceTransformer", FakeClip, raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    return FakeClip


def nearest(embedder: Any, text: str, colours: tuple[str, ...] = ("red", "green", "blue", "white")) -> str:
    pictures = embedder.embed_images([picture_file(colour, "PNG", (37, 21)) for colour in colours])
    return colours[int(np.argmax(pictures @ embedder.embed_queries([text])[0]))]


@pytest.mark.usefixtures("clip")
def test_text_finds_picture_by_clip() -> None:
    embedder = load_embedder("clip:any")
    assert isinstance(embedder, ClipEmbedder)
    assert isinstance(embedder, MultimodalEmbedder)
    assert (embedder.name, embedder.dimensions) == ("clip:any", 3)
    assert [nearest(embedder, word) for word in ("red", "blue", "white")] == ["red", "blue", "white"]


def test_model_without_a_shared_space_is_refused_at_construction(
    clip: type[FakeClip], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clip, "dimensions", 2)
    with pytest.raises(ModelError, match="no space that texts and pictures share: texts have 3 dimensions, pictures 2"):
        ClipEmbedder("any")


def test_model_of_texts_alone_is_refused_at_construction(clip: type[FakeClip], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(clip, "encode")
    with pytest.raises(ModelError, match="failed"):
        ClipEmbedder("any")


@pytest.mark.usefixtures("clip")
def test_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match="cannot load 'missing'"):
        ClipEmbedder("missing")


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependencyError, match=r"pointsman\[images\]"):
        ClipEmbedder("any")


@pytest.mark.usefixtures("clip")
class TestClip(MultimodalEmbedderConformance):
    def make(self) -> MultimodalEmbedder:
        return ClipEmbedder("any")


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
@pytest.mark.parametrize("make", [lambda: ClipEmbedder("any"), ColourEmbedder], ids=["clip", "colours"])
@pytest.mark.usefixtures("clip")
def test_hostile_picture_is_refused_by_every_embedder(make: Callable[[], Any], data: bytes, reason: str) -> None:
    embedder = make()
    with pytest.raises(InputError, match=reason):
        embedder.embed_images([data])


@pytest.mark.usefixtures("clip")
def test_picture_of_one_row_takes_no_more_memory_than_others() -> None:
    import tracemalloc

    embedder = ClipEmbedder("any")
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
        with pytest.raises(UnmetNeedError, match="set image_embedder to clip:NAME"):
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
