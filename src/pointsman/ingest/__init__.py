"""Files to passages: converters, sentence-aware chunking, folders, and texts available on every machine.

Each converter is imported when the first file of its format is read.
"""

from pointsman.ingest.builtin import installed_package_documents, own_documents, standard_library_documents
from pointsman.ingest.chunk import chunk, document_digest, estimate_tokens
from pointsman.ingest.convert import convert
from pointsman.ingest.encoding import check_encoding
from pointsman.ingest.file_walk import FileOptions, Omission, find_files
from pointsman.ingest.folder import Sync, plan_sync, read_paths, text_of
from pointsman.ingest.reader import FileReader, ReadResult
from pointsman.ingest.reading_limits import FileLimits
from pointsman.ingest.source_text import FoundFile, ParsedDocument, Problem, Section

__all__ = [
    "FileLimits",
    "FileOptions",
    "FileReader",
    "FoundFile",
    "Omission",
    "ParsedDocument",
    "Problem",
    "ReadResult",
    "Section",
    "Sync",
    "check_encoding",
    "chunk",
    "convert",
    "document_digest",
    "estimate_tokens",
    "find_files",
    "installed_package_documents",
    "own_documents",
    "plan_sync",
    "read_paths",
    "standard_library_documents",
    "text_of",
]
