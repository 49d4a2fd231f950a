"""Other stores of words and vectors, asked in `scale.py` for the same passages by the same questions.

Each script builds what its store has for hybrid search in an environment of its own (`_peers.ask_peer`), over words
that are analysed already and vectors that are given, and answers each question with ten passages and their texts: the
best hundred of both lists, fused by rank. What it is given lies in one folder:

    texts.txt, words.txt      a passage a line; the words are Pointsman's tokens with spaces between
    vectors.npy               float32, of unit length
    questions.json, asked.npy words and vectors of the questions, of which none is asked twice

The last line it prints is JSON: milliseconds by question, the ten nearest passages of the vector list alone, the ten
best of the word list alone, seconds to build, and megabytes on disk and in memory.
"""

from __future__ import annotations

COMMON = """
import json, resource, sys, time
from pathlib import Path
import numpy as np

folder, place = Path(sys.argv[1]), Path(sys.argv[2])
place.mkdir(parents=True, exist_ok=True)
vectors = np.load(folder / "vectors.npy", mmap_mode="r")
questions, asked = json.loads((folder / "questions.json").read_text()), np.load(folder / "asked.npy")
COUNT = len(vectors)
LISTS = max(16, 2 ** round(np.log2(COUNT) / 2))

def batches(size=20_000):
    # The first number, texts, words and vectors of some passages at a time.
    with open(folder / "texts.txt") as texts, open(folder / "words.txt") as words:
        for start in range(0, COUNT, size):
            count = min(size, COUNT - start)
            yield (start, [next(texts)[:-1] for _ in range(count)], [next(words)[:-1] for _ in range(count)],
                   np.array(vectors[start : start + count]))

def report(began, hybrid, near, lexical):
    built = time.perf_counter() - began
    for number in range(3):
        hybrid(questions[-1 - number], asked[-1 - number])
    taken = []
    for words, vector in zip(questions[:-3], asked[:-3]):
        start = time.perf_counter()
        found = hybrid(words, vector)
        taken.append((time.perf_counter() - start) * 1000)
        assert len(found) == 10 and all(found), found
    status = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    print(json.dumps({
        "ms": taken, "built": built,
        "near": [near(vector) for vector in asked[:-3]], "lexical": [lexical(words) for words in questions[:-3]],
        "disk": sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) // 10**6,
        "resident": int(status["VmRSS"].split()[0]) // 1024,
    }))
"""

FAISS_AND_TANTIVY = (
    COMMON
    + """
import faiss, tantivy

faiss.omp_set_num_threads(2)
began = time.perf_counter()
index = faiss.index_factory(384, f"IVF{LISTS},SQ8", faiss.METRIC_INNER_PRODUCT)
index.train(np.array(vectors[:: max(1, COUNT // (40 * LISTS))]))
schema = tantivy.SchemaBuilder()
schema.add_integer_field("number", fast=True)
schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
words_index = tantivy.Index(schema.build(), path=str(place))
writer, offsets, offset = words_index.writer(96_000_000, 1), [0], 0
for start, texts, words, rows in batches():
    index.add(rows)
    for number, (text, line) in enumerate(zip(texts, words), start):
        offset += len(text.encode()) + 1
        offsets.append(offset)
        writer.add_document(tantivy.Document(number=number, words=line))
writer.commit()
writer.wait_merging_threads()
faiss.write_index(index, str(place / "vectors.faiss"))
words_index.reload()
searcher, contents = words_index.searcher(), np.memmap(folder / "texts.txt", np.uint8, "r")
index.nprobe = 32
faiss.omp_set_num_threads(1)

def near(vector, k=10):
    return index.search(vector[None], k)[1][0].tolist()

def lexical(words, k=10):
    query = tantivy.Query.boolean_query(
        [(tantivy.Occur.Should, tantivy.Query.term_query(words_index.schema, "words", word)) for word in words.split()])
    hits = searcher.search(query, k, count=False).hits
    return searcher.fast_field_values("number", [address for _, address in hits])

def hybrid(words, vector):
    scores = {}
    for ranking in (near(vector, 100), lexical(words, 100)):
        for rank, number in enumerate(ranking):
            scores[number] = scores.get(number, 0) + 1 / (61 + rank)
    best = sorted(scores, key=scores.get, reverse=True)[:10]
    return [contents[offsets[number] : offsets[number + 1] - 1].tobytes().decode() for number in best]

report(began, hybrid, near, lexical)
"""
)

LANCEDB = (
    COMMON
    + """
import lancedb, pyarrow as pa
from lancedb.index import FTS, IvfHnswSq
from lancedb.query import MatchQuery
from lancedb.rerankers import RRFReranker

began = time.perf_counter()
def tables():
    for start, texts, words, rows in batches():
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 384)
        numbers = pa.array(range(start, start + len(rows)), pa.int64())
        yield pa.record_batch([numbers, pa.array(texts), pa.array(words), flat], ["number", "text", "words", "vector"])

schema = pa.schema([("number", pa.int64()), ("text", pa.string()), ("words", pa.string()),
                    ("vector", pa.list_(pa.float32(), 384))])
table = lancedb.connect(place).create_table("passages", tables(), schema=schema)
table.create_index("vector", config=IvfHnswSq(distance_type="dot", num_partitions=max(1, COUNT // 250_000)))
plain = FTS(base_tokenizer="whitespace", stem=False, remove_stop_words=False, ascii_folding=False, lower_case=False)
table.create_index("words", config=plain)
table.optimize()
fused = RRFReranker()

def near(vector, k=10):
    query = table.search(vector, vector_column_name="vector").distance_type("dot").nprobes(8).ef(200).refine_factor(2)
    return [row["number"] for row in query.limit(k).select(["number"]).to_list()]

def lexical(words, k=10):
    query = table.search(MatchQuery(words, "words"), query_type="fts").limit(k).select(["number"])
    return [row["number"] for row in query.to_list()]

def hybrid(words, vector):
    query = table.search(query_type="hybrid", vector_column_name="vector", fts_columns="words")
    query = query.vector(vector).text(MatchQuery(words, "words")).distance_type("dot").nprobes(8).ef(200)
    rows = query.refine_factor(2).rerank(fused).limit(100).select(["number", "text"]).to_list()
    return [row["text"] for row in rows[:10]]

report(began, hybrid, near, lexical)
"""
)

ZVEC = (
    COMMON
    + """
import zvec

zvec.init(query_threads=2, log_level=zvec.LogLevel.ERROR, log_type=zvec.LogType.CONSOLE)
began = time.perf_counter()
by_words = zvec.FtsIndexParam(tokenizer_name="whitespace", filters=[])
by_vector = zvec.IvfRabitqIndexParam(metric_type=zvec.MetricType.IP, nlist=LISTS, sample_count=40 * LISTS)
schema = zvec.CollectionSchema(
    "passages",
    fields=[
        zvec.FieldSchema("text", zvec.DataType.STRING),
        zvec.FieldSchema("words", zvec.DataType.STRING, index_param=by_words),
    ],
    vectors=[zvec.VectorSchema("vector", zvec.DataType.VECTOR_FP32, 384, by_vector)],
)
collection = zvec.create_and_open(str(place / "passages"), schema)
for start, texts, words, rows in batches():
    documents = [zvec.Doc(str(number), vectors={"vector": row}, fields={"text": text, "words": line})
                 for number, (text, line, row) in enumerate(zip(texts, words, rows), start)]
    for first in range(0, len(documents), 1000):
        statuses = collection.insert(documents[first : first + 1000])
        assert all(status.ok() for status in statuses), statuses[0]
collection.optimize()
parameters, fused = zvec.IvfRabitqQueryParam(nprobe=32, is_using_refiner=True, scale_factor=4), zvec.RrfReRanker()

def of_vector(vector):
    return zvec.Query("vector", vector=vector, param=parameters)

def of_words(words):
    return zvec.Query("words", fts=zvec.Fts(match_string=words))

def near(vector):
    return [int(document.id) for document in collection.query(of_vector(vector), topk=10, output_fields=[])]

def lexical(words):
    return [int(document.id) for document in collection.query(of_words(words), topk=10, output_fields=[])]

def hybrid(words, vector):
    best = collection.query([of_vector(vector), of_words(words)], topk=100, reranker=fused, output_fields=["text"])
    return [document.field("text") for document in best[:10]]

report(began, hybrid, near, lexical)
"""
)

PEERS = {
    "FAISS and tantivy": (("faiss-cpu", "tantivy"), FAISS_AND_TANTIVY),
    "LanceDB": (("lancedb",), LANCEDB),
    "zvec": (("zvec", "numpy"), ZVEC),
}
