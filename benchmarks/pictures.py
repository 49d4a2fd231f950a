"""Generated pictures of text, indexed by their words: how many are found, by engine.

    python benchmarks/pictures.py [--pictures 200] [--seed 5] [--engine both|tesseract|rapidocr]

Each picture has three lines of a passage of XQuAD (English, Russian, Chinese), written plainly, small (14 pixels), on
colour, light on dark, slightly turned, or lying on its side. All are indexed; a picture is found if a query of
five words in a row out of its text (twelve characters in Chinese) brings it first. No two pictures are of one passage,
else they may hold the same words; how many the very text finds is told too, since no engine can reach more.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections import Counter
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from pointsman import Dataset, Document
from pointsman.ingest import Problem, chunk, convert
from pointsman.ingest.converters import pictures as _pictures
from pointsman.tools.errors import InputError

DATA = Path(__file__).parents[1] / ".." / "shared" / "data"
FONTS = {
    "en": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "ru": "/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf",
    "zh": "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
}
LOOKS = ("plain", "small", "colour", "dark", "turned", "sideways")


def passages(language: str, rng: random.Random) -> list[str]:
    """The passages of a language, in random order."""
    lines = (DATA / f"{language}_xquad" / "corpus.jsonl").read_text("utf-8").splitlines()
    texts = [" ".join(json.loads(line)["text"].split()) for line in lines]
    return rng.sample(texts, len(texts))


def lines_of(text: str, language: str, rng: random.Random) -> list[str]:
    if language == "zh":
        start = rng.randrange(max(len(text) - 72, 1))
        return [text[start + place : start + place + 24] for place in (0, 24, 48)]
    words = text.split()
    start = rng.randrange(max(len(words) - 24, 1))
    return [" ".join(words[start + place : start + place + 8]) for place in (0, 8, 16)]


def draw(lines: list[str], language: str, look: str, rng: random.Random) -> Image.Image:
    size = 14 if look == "small" else rng.randint(22, 36)
    font = ImageFont.truetype(FONTS[language], size)
    paper, ink = {"colour": ("#f4d58d", "#1d3557"), "dark": ("#101820", "#f0f0f0")}.get(look, ("white", "black"))
    width = int(max(font.getlength(line) for line in lines)) + 60
    image = Image.new("RGB", (width, 60 + int(len(lines) * size * 1.6)), paper)
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        pen.text((30, 30 + number * size * 1.6), line, fill=ink, font=font)
    if look == "turned":
        return image.rotate(rng.uniform(-4, 4), expand=True, fillcolor=paper, resample=Image.Resampling.BICUBIC)
    return image.rotate(90, expand=True) if look == "sideways" else image


def query_of(lines: list[str], language: str, rng: random.Random) -> str:
    line = rng.choice([line for line in lines if line] or [""])
    if language == "zh":
        start = rng.randrange(max(len(line) - 12, 1))
        return line[start : start + 12]
    return " ".join(line.split()[:5])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=200, help="at most 240 a language")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--engine", choices=["both", "tesseract", "rapidocr"], default="both")
    arguments = parser.parse_args()
    if arguments.engine == "tesseract":
        setattr(_pictures, "has_rapidocr", lambda: False)  # noqa: B010  (mypy forbids the other way)
    elif arguments.engine == "rapidocr":
        setattr(_pictures, "languages", tuple)  # noqa: B010  (as above)
    rng = random.Random(arguments.seed)
    texts = {language: passages(language, rng) for language in FONTS}
    made: dict[str, tuple[str, str, str]] = {}
    dataset = Dataset("pictures", indexing_technique="keyword")
    drawn = Dataset("drawn", indexing_technique="keyword")
    problems: list[Problem] = []
    took = 0.0
    for number in range(arguments.pictures):
        language, look = ("en", "ru", "zh")[number % 3], LOOKS[number // 3 % len(LOOKS)]
        lines, name, data = lines_of(texts[language].pop(), language, rng), f"{number:03}.png", io.BytesIO()
        draw(lines, language, look, rng).save(data, "PNG")
        drawn.add([Document(name, "\n".join(lines), {"source": name})])
        made[name] = (language, look, query_of(lines, language, rng))
        began = time.process_time()
        try:
            for item in convert(name, data.getvalue()):
                if isinstance(item, Problem):
                    problems.append(item)
                else:
                    dataset.add(chunk(item))
        except InputError as error:
            problems.append(Problem(name, str(error)))
        took += time.process_time() - began
    found: Counter[tuple[str, str]] = Counter()
    most = 0
    for name, (language, look, query) in made.items():
        first, best = (one.retriever("bm25").retrieve(query, top_k=1) for one in (dataset, drawn))
        found[language, look] += bool(first) and first[0].metadata["source"] == name
        most += bool(best) and best[0].metadata["source"] == name
    totals = Counter((language, look) for language, look, _ in made.values())
    print(f"{'':4}" + "".join(f"{look:>12}" for look in LOOKS))
    for language in ("en", "ru", "zh"):
        shares = (f"{found[language, look]:>8}/{totals[language, look]:<3}" for look in LOOKS)
        print(f"{language:4}" + "".join(shares))
    print(f"{found.total()} of {len(made)} found ({found.total() / len(made):.3f}), {took / len(made):.2f} s each; "
          f"{most} by the text that was drawn; {len(problems)} reported")  # fmt: skip
    for problem in problems[:3]:
        print(f"  {problem.path}: {problem.reason[:150]}")


if __name__ == "__main__":
    main()
