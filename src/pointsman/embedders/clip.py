"""Runs CLIP from a folder with two ONNX files, one for texts and one for pictures: both give vectors of one space."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from pointsman.embedders.base_embedder import image_list, unit_rows
from pointsman.embedders.onnx_directory import OnnxTextEmbedder, OnnxTextModel, digest_of, existing_file, onnx_session
from pointsman.tools.errors import InputError, ModelError
from pointsman.tools.images import open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

_TEXTS, _PICTURES = "text_model.onnx", "vision_model.onnx"
_PREPROCESSING = "preprocessor_config.json"
_OUTPUTS: Final = {_TEXTS: ("text_embeds", "sentence_embedding"), _PICTURES: ("image_embeds", "sentence_embedding")}
_MAX_TOKENS: Final = 77  # positions of CLIP's text model
_LONGEST_SIDE: Final = 2048  # pixels; larger pictures are scaled down first
_MOST_SIDE: Final = 1024  # pixels of a model's input
_PADDED_FAMILIES = frozenset({"siglip", "siglip2"})  # families whose texts must be padded as in training


class ClipEmbedder(OnnxTextEmbedder):
    """An embedder for a local CLIP model in ONNX, run on the CPU: a text finds the pictures that show it.

    The folder is laid out as Hugging Face's exports are: ``text_model.onnx`` and ``vision_model.onnx`` (or both in
    ``onnx/``), ``tokenizer.json`` and ``preprocessor_config.json``. Both models must have an output in the shared space
    (``text_embeds``, ``image_embeds``). Texts are cut after 77 tokens, since CLIP knows no more positions.

    Each picture has its own run, so its vector does not depend on others.
    """

    def __init__(self, directory: str | Path, *, threads: int | None = None) -> None:
        """Open both models.

        Args:
            directory: the folder.
            threads: cores that a run may use; None lets onnxruntime choose.

        Raises:
            InputError: a file is absent, or Pillow is not installed.
            MissingDependencyError: the package ``tokenizers`` is not installed.
            ModelError: a file has an invalid format, the two models have no shared space, or the model is of a family
                whose texts need padding.
        """
        folder = Path(directory)
        pictures_path = existing_file(folder, _PICTURES, f"onnx/{_PICTURES}")
        preprocessing_path = existing_file(folder, _PREPROCESSING)
        _check_family(folder / "config.json")
        self._preprocessing = _Preprocessing.read(preprocessing_path)
        self._model = OnnxTextModel(folder, threads, "ClipEmbedder", _TEXTS)
        self._model.tokenizer.enable_truncation(_MAX_TOKENS)
        self._max_tokens, self._prefixes = _MAX_TOKENS, ("", "")
        self._pictures = onnx_session(pictures_path, threads)
        self._output = _shared_output(self._model.outputs, _TEXTS, folder)
        self._picture_output = _shared_output(self._pictures.get_outputs(), _PICTURES, folder)
        self._picture_input = _picture_input(self._pictures, folder)
        self._name = f"{self._model.name.replace('onnx:', 'clip:', 1)}-{digest_of(pictures_path, preprocessing_path)}"
        dimensions = self._run([self._tokens("dimensions")]).shape[1]
        size = self._preprocessing
        picture_dimensions = self._run_picture(np.zeros((1, 3, size.height, size.width), np.float32)).shape[1]
        if dimensions != picture_dimensions:
            raise ModelError(
                f"the models in {folder} have no shared space: texts have {dimensions} dimensions, pictures "
                f"{picture_dimensions}; export both with their projections (text_embeds, image_embeds)"
            )
        self._dimensions = dimensions

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Return vectors of shape ``(len(images), dimensions)``, float32, L2-normalised.

        Args:
            images: the contents of picture files: PNG, JPEG, TIFF, WebP, BMP or GIF, at most 60 million pixels.

        Raises:
            InputError: one is no such picture.
            ModelError: the model failed.
        """
        vectors = np.empty((len(images), self.dimensions), np.float32)
        for row, data in enumerate(image_list(images)):
            try:
                pixels = self._preprocessing.pixels(open_image(data, _LONGEST_SIDE))
            except InputError as error:
                raise InputError(f"image {row}: {error}") from error
            vectors[row] = unit_rows(self._run_picture(pixels), self._name)[0]
        return vectors

    def _run_picture(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            result: NDArray[np.float32] = self._pictures.run([self._picture_output], {self._picture_input: pixels})[0]
        except Exception as error:  # onnxruntime has no common base error
            raise ModelError(f"{self._name} failed on a picture: {error}") from error
        return result


@dataclass(frozen=True, slots=True)
class _Preprocessing:
    """How pictures become the model's input: scaled or cropped to a size, then normalised by channel.

    Attributes:
        width: of the input, in pixels.
        height: of the input, in pixels.
        shortest_edge: the picture is scaled until its shorter side has so many pixels, and cropped in the middle; None:
            it is scaled to the size whatever its shape.
        resample: Pillow's number of the filter.
        scale: factor of the bytes.
        mean: of each channel after that.
        deviation: of each channel after that.
    """

    width: int
    height: int
    shortest_edge: int | None
    resample: int
    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read Hugging Face's file.

        Raises:
            ModelError: it is not JSON, or has other values than those of CLIP's image processor.
        """
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            size, crop = config["size"], config.get("crop_size", config["size"])
            shortest_edge = size if isinstance(size, int) else size.get("shortest_edge")
            crops = config.get("do_center_crop", False)
            width, height = _size(crop if crops else size)
            settings = cls(
                width,
                height,
                int(shortest_edge) if crops and shortest_edge is not None else None,
                int(config.get("resample", 3)),
                float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0,
                _channels(config["image_mean"]) if config.get("do_normalize", True) else (0.0, 0.0, 0.0),
                _channels(config["image_std"]) if config.get("do_normalize", True) else (1.0, 1.0, 1.0),
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path} does not say how pictures become the model's input: {error!r:.200}") from error
        settings._check(path)
        return settings

    def _check(self, path: Path) -> None:
        edge = self.shortest_edge
        sides = (self.width, self.height) if edge is None else (self.width, self.height, edge)
        if not all(1 <= side <= _MOST_SIDE for side in sides):
            raise ModelError(f"{path}: sides have 1 to {_MOST_SIDE} pixels, not {sides}")
        if edge is not None and max(self.width, self.height) > edge:
            raise ModelError(f"{path}: a crop of {self.width} × {self.height} pixels exceeds the shorter side, {edge}")
        if self.resample not in range(6) or 0 in self.deviation:
            raise ModelError(f"{path}: resample is from 0 to 5 and image_std is not 0")

    def pixels(self, image: Image) -> NDArray[np.float32]:
        """Return a picture in RGB as the model's input, shape ``(1, 3, height, width)``, float32.

        The crop is made while the picture is scaled, so that one of 1 by 60,000,000 pixels takes no more memory.
        """
        box = (0.0, 0.0, float(image.width), float(image.height))
        if self.shortest_edge is not None:
            factor = min(image.size) / self.shortest_edge
            width, height = self.width * factor, self.height * factor
            left_edge, top = (image.width - width) / 2, (image.height - height) / 2
            box = (
                max(left_edge, 0.0),
                max(top, 0.0),
                min(left_edge + width, image.width),
                min(top + height, image.height),
            )
        resized_image = image.resize((self.width, self.height), self.resample, box)
        values = np.asarray(resized_image, np.float32) * self.scale
        pixel_values = (values - np.array(self.mean)) / np.array(self.deviation)
        return np.ascontiguousarray(pixel_values.transpose(2, 0, 1)[None], np.float32)


def _size(value: int | Mapping[str, int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    edge = value.get("shortest_edge")
    return (int(value["width"]), int(value["height"])) if edge is None else (int(edge), int(edge))


def _channels(values: Sequence[float]) -> tuple[float, ...]:
    red, green, blue = map(float, values)
    return red, green, blue


def _check_family(path: Path) -> None:
    """Refuse models whose texts would be embedded wrongly; a folder without ``config.json`` is taken for CLIP.

    Raises:
        ModelError: the model is of such a family.
    """
    try:
        family = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return
    if family in _PADDED_FAMILIES:
        raise ModelError(
            f"the model in {path.parent} is of the family {family!r}, whose texts are padded in its own way; serve it "
            "by infinity or vLLM, and name the server: infinity:MODEL@URL"
        )


def _shared_output(outputs: Sequence[Any], file: str, folder: Path) -> str:
    """Return the name of the output in the shared space: a known name, else the only one of rank 2.

    Raises:
        ModelError: there is none, or the choice is not clear.
    """
    names = [output.name for output in outputs]
    for name in _OUTPUTS[file]:
        if name in names:
            return name
    flat_names = [output.name for output in outputs if len(output.shape) == 2]
    if len(flat_names) == 1 and flat_names[0] != "pooler_output":
        return str(flat_names[0])
    raise ModelError(
        f"{file} in {folder} has no output named {_OUTPUTS[file][0]} (it has {', '.join(names)}); export the model "
        "with its projection into the shared space"
    )


def _picture_input(session: Any, folder: Path) -> str:
    """Return the name of the input for pixels.

    Raises:
        ModelError: the model has other inputs, too.
    """
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
        inputs_text = ", ".join(f"{item.name}: {item.type}" for item in inputs)
        raise ModelError(f"{_PICTURES} in {folder} takes {inputs_text}; it takes pixel_values alone, as tensor(float)")
    return str(inputs[0].name)
