"""Text for pre-training BERT: files of tokens, made from text files, packed batches of their sequences, and training on
these.

    python -m tessera.text corpus.txt --vocabulary vocab.txt --out tokens.safetensors

`tokenize` needs the package `tokenizers`, which the extra `text` installs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from tessera._arguments import chosen
from tessera._bert_plan import PretrainingCost, PretrainingDivision, PretrainingPlan, plan_pretraining
from tessera._bert_trainer import BertTrainer
from tessera._tessera import PretrainingData, PretrainingEvaluation, TokenText, synthetic_text

__all__ = [
    "BertTrainer",
    "Documents",
    "PretrainingCost",
    "PretrainingData",
    "PretrainingDivision",
    "PretrainingEvaluation",
    "PretrainingPlan",
    "TokenText",
    "plan_pretraining",
    "synthetic_text",
    "tokenize",
]

#: How a text file is divided into documents.
Documents: TypeAlias = Literal["lines", "paragraphs", "sections", "articles"]

_SPECIAL = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_UNKNOWN = "[UNK]"
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'’”)]))\s+")
_HEADING = re.compile(r"=(?: =)* .* =(?: =)*")
_JOINED = re.compile(r" @(\W)@ ")
_SENTENCES_AT_ONCE = 10_000


def tokenize(
    files: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    vocabulary: str | os.PathLike[str],
    *,
    documents: Documents = "lines",
    lowercase: bool = True,
) -> TokenText:
    """Tokenise text files, in UTF-8, with a vocabulary of WordPiece: one token per line, as in BERT's vocab.txt.

    In a file of "lines" each line is a sentence, and an empty line ends a document, as for BERT's own scripts. With
    "paragraphs" each line is a document of sentences that end with a full stop, a question or an exclamation mark; with
    "sections" and "articles" a heading begins a document. Headings, = Article = and = = Section = = as in WikiText, are
    left out. A file ends a document. WikiText's <unk> becomes the unknown token, and its @-@ a hyphen. [SEP] and other
    special tokens that a text spells out are ordinary words; only [UNK] becomes the special token.

    The tokens take 4 bytes of memory each, and twice as much while the text is made.

    Raises ImportError without the package `tokenizers`, OSError for files that cannot be read, ValueError for a
    vocabulary without special tokens and for files without text.
    """
    chosen("documents", documents, get_args(Documents))
    paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    words = list(_lines(vocabulary))
    tokenizer, special = _tokenizer(vocabulary, words, lowercase)
    tokens, sentences, ends = array("I"), array("Q", [0]), array("Q", [0])
    pieces = (piece for path in paths for piece in _pieces(_lines(path), documents))
    while chunk := list(islice(pieces, _SENTENCES_AT_ONCE)):
        encoded = tokenizer.encode_batch([piece or "" for piece in chunk], add_special_tokens=False)
        for piece, sentence in zip(chunk, encoded, strict=True):
            if piece is None:
                if len(sentences) - 1 > ends[-1]:
                    ends.append(len(sentences) - 1)
            elif sentence.ids:
                tokens.extend(sentence.ids)
                sentences.append(len(tokens))
    if not tokens:
        raise ValueError(f"{', '.join(os.fspath(path) for path in paths)}: no text to tokenise")
    name = ", ".join(os.path.basename(os.fspath(path)) for path in paths)
    return TokenText(
        name,
        len(words),
        special,
        np.frombuffer(tokens, np.uint32),
        np.frombuffer(sentences, np.uint64),
        np.frombuffer(ends, np.uint64),
    )


def _tokenizer(
    vocabulary: str | os.PathLike[str], words: Sequence[str], lowercase: bool
) -> tuple[Any, dict[str, int]]:
    """BERT's tokenizer, with the unknown token as its only special token; and the numbers of all special tokens.

    A word's number is the number of its line, or of the last line with this word, as in Hugging Face's tokenizers.
    """
    try:
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer
    except ImportError as error:
        raise ImportError("tokenising text needs the package tokenizers: pip install tokenizers") from error
    numbers = {word: i for i, word in enumerate(words)}
    missing = [token for token in (*_SPECIAL.values(), _UNKNOWN) if token not in numbers]
    if missing:
        path = os.fspath(vocabulary)
        raise ValueError(f"{path}: no vocabulary of BERT, a token per line: it lacks {', '.join(missing)}")
    tokenizer: Any = Tokenizer(WordPiece(numbers, unk_token=_UNKNOWN))
    tokenizer.add_special_tokens([_UNKNOWN])
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer, {name: numbers[token] for name, token in _SPECIAL.items()}


def _lines(path: str | os.PathLike[str]) -> Iterator[str]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                where = f"line {number}, byte {error.start + 1}"
                raise ValueError(f"{os.fspath(path)}: not text in UTF-8: {error.reason} in {where}") from error
            text = text.removesuffix("\n").removesuffix("\r")
            yield from map(str.strip, text.split("\r"))  # which ended lines once


def _pieces(lines: Iterable[str], documents: Documents) -> Iterator[str | None]:
    """The sentences of a file, and None where a document ends."""
    for line in lines:
        if documents == "lines":
            yield _cleaned(line) if line else None
            continue
        if _HEADING.fullmatch(line):
            if documents != "articles" or not line.startswith("= ="):
                yield None
            continue
        if line:
            yield from _SENTENCE_END.split(_cleaned(line))
        if documents == "paragraphs":
            yield None
    yield None


def _cleaned(line: str) -> str:
    return _JOINED.sub(r"\1", line.replace("<unk>", _UNKNOWN))


def _main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tessera.text", description="Tokenise text for pre-training.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="text in UTF-8")
    parser.add_argument("--vocabulary", required=True, help="vocab.txt of a BERT: a token per line")
    parser.add_argument("--out", required=True, help="file to write (.safetensors)")
    parser.add_argument(
        "--documents",
        choices=get_args(Documents),
        default="lines",
        help="lines: a sentence per line, an empty line ends a document (default); paragraphs: each line is a "
        "document; sections, articles: headings between equals signs begin documents",
    )
    parser.add_argument("--cased", action="store_true", help="keep capitals and accents")
    options = parser.parse_args(arguments)
    for file in (*options.files, options.vocabulary):
        if os.path.exists(options.out) and os.path.exists(file) and os.path.samefile(options.out, file):
            print(f"{parser.prog}: --out would be written over {file}: give another name", file=sys.stderr)
            return 1
    try:
        text = tokenize(
            options.files, options.vocabulary, documents=options.documents, lowercase=not options.cased
        )
        text.save(options.out)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    documents, sentences = len(text.documents) - 1, len(text.sentences) - 1
    print(f"{options.out}: {len(text.tokens):,} tokens in {sentences:,} sentences of {documents:,} documents")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
