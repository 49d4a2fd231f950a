"""Folders of strangers: parts of public repositories, taken from checkouts that stand on this machine.

Of each folder only the questions are kept here (``folders/NAME.tsv``: 45 with the files that answer them, 15 that
nothing in the folder answers); they were written before any of them was asked. ``$POINTSMAN_CHECKOUTS`` is a directory
of git repositories, each named ``OWNER+NAME`` and with the commit that is given here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

DIRECTORY: Final = "POINTSMAN_CHECKOUTS"
SECONDS: Final = 60.0


class Checkout(NamedTuple):
    """Files of a repository: at this commit, below one of these paths, not below one that is left out."""

    repository: str
    commit: str
    paths: tuple[str, ...]
    left_out: tuple[str, ...] = ()


CHECKOUTS: Final[Mapping[str, Checkout]] = {
    "agency": Checkout(
        "madetech/handbook",
        "feab1851a74e3ea1f7665e095fc98337609f0619",
        ("benefits/", "company/", "guides/"),
        (
            *("guides/cloud/", "guides/hiring/", "guides/process/", "guides/mentorship/", "guides/contributing"),
            *("guides/equality", "guides/policy/dealing_code"),
        ),
    ),
    "kitchen": Checkout(
        "Anduin2017/HowToCook",
        "cbeb536760320efe24f9a61fe354a318d5887e30",
        ("tips/", "dishes/drink/", "dishes/soup/", "dishes/condiment/"),
    ),
    "cloud": Checkout(
        "vk-cs/docs-public",
        "ef2cc93978cb896def7ac6f54728c33e5395e67f",
        ("docs/ru/intro/",),
        (
            *("docs/ru/intro/onboarding/quick-start/", "docs/ru/intro/onboarding/account/create-account/"),
            *("docs/ru/intro/migration/migrate-hy", "docs/ru/intro/billing/quick-start/"),
        ),
    ),
    "studio": Checkout("basecamp/handbook", "c9536061f26d0b5bd9f2f900d63e27e9f4deb4ed", (".",)),
    "guide": Checkout("doka-guide/content", "4346a0274c74bd54d1dccbd998e4b07c8cef257b", ("docs/",)),
    "newsroom": Checkout(
        "fivethirtyeight/data",
        "fcf572c4fba05a42f1f34f415bd5e6dc389efd68",
        (
            *("airline-safety/", "alcohol-consumption/", "avengers/", "bad-drivers/", "bob-ross/README.md"),
            *("candy-power-ranking/", "college-majors/readme.md", "college-majors/women-stem.csv"),
            *("congress-resignations/", "drug-use-by-age/", "fandango/README.md", "fight-songs/"),
            *("foul-balls/README.md", "goose/README.md", "hate-crimes/", "infrastructure-jobs/", "love-actually/"),
            *("mad-men/", "marriage/README.md", "nba-draymond/README.md", "nutrition-studies/README.md"),
            *("obama-commutations/README.md", "police-locals/", "potential-candidates/", "sandy-311-calls/Readme.md"),
            *("study-drugs/README.md", "tarantino/README.md"),
        ),
    ),
    "campus": Checkout(
        "SurviveSJTU/SurviveSJTUManual",
        "cd9f21afb5ce4a87e643280ae5000b6ea4bfccdc",
        (
            *("li-zhi-pian/", "sheng-cun-ji-qiao/", "fang-tan-ji/bao-yan-zhe-shuo/", "fang-tan-ji/untitled/"),
            *("fang-tan-ji/guan-li-zhe-de-zhi-hui/", "fang-tan-ji/po-jie-liu-hu-zheng-ce/"),
            *("fang-tan-ji/xiao-xin-xiang-mu-de-xian-jing/", "fang-tan-ji/zuo-zhen-zheng-de-yan-jiu/"),
        ),
    ),
    "roadmap": Checkout(
        "tlbootcamp/tlroadmap",
        "a0562de32dfc11b973cae2db20df22e343d7ad2f",
        ("tlroadmap/roles/people-manager/", "tlroadmap/roles/integrator/", "tlroadmap/self-skills/"),
    ),
}
"""By name of the folder: an agency's handbook, recipes in Chinese, the documentation of a cloud in Russian,
a software company's handbook, the guide for contributors of a Russian reference, tables behind a newspaper's stories,
a Chinese students' manual, and what Russian team leads have to know."""


def why_missing(name: str) -> str:
    """Why a folder cannot be written; empty if it can."""
    directory = os.environ.get(DIRECTORY)
    if not directory:
        return f"${DIRECTORY} names no directory of checkouts"
    checkout = CHECKOUTS[name]
    path = Path(directory) / checkout.repository.replace("/", "+")
    if not path.is_dir():
        return f"there is no {path}"
    try:
        _git(checkout, "cat-file", "-e", checkout.commit)
    except subprocess.CalledProcessError:
        return f"{path} does not have the commit {checkout.commit}"
    return ""


def write_checkout(name: str, target: Path) -> int:
    """Write the Markdown and CSV files of a folder below ``target``; returns their number."""
    checkout = CHECKOUTS[name]
    listing = _git(checkout, "ls-tree", "-r", "-z", "--name-only", checkout.commit, *checkout.paths)
    files = [
        path
        for path in filter(None, listing.decode().split("\0"))
        if path.endswith((".md", ".csv")) and not path.startswith(checkout.left_out)
    ]
    for path in files:
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_git(checkout, "show", f"{checkout.commit}:{path}"))
    return len(files)


def _git(checkout: Checkout, *arguments: str) -> bytes:
    path = Path(os.environ[DIRECTORY]) / checkout.repository.replace("/", "+")
    command = ["git", "-C", str(path), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=SECONDS).stdout
