"""Text for pre-training: tokenised by the package `tokenizers`, and used for training in packs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tessera.text
from tessera import graph as tg
from tessera.text import PretrainingData, TokenText, synthetic_text, tokenize

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "on", "mat", ".", "!", "dog", "-"]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


def words_of(text: TokenText) -> list[list[str]]:
    """The documents as lists of sentences."""
    sentences = [
        " ".join(WORDS[token] for token in text.tokens[begin:end])
        for begin, end in zip(text.sentences[:-1], text.sentences[1:], strict=True)
    ]
    return [sentences[begin:end] for begin, end in zip(text.documents[:-1], text.documents[1:], strict=True)]


def test_lines_are_sentences_and_empty_lines_end_documents(vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The cats sat.\nThe bird!\n\n\nOn the mat\n")
    (tmp_path / "b.txt").write_text("dog")
    text = tokenize([tmp_path / "a.txt", tmp_path / "b.txt"], vocabulary)
    assert words_of(text) == [["the cat ##s sat .", "the [UNK] !"], ["on the mat"], ["dog"]]
    assert text.vocabulary == len(WORDS)
    assert text.special == {"pad": 0, "cls": 2, "sep": 3, "mask": 4}

    text.save(str(tmp_path / "tokens.safetensors"))
    again = TokenText.load(str(tmp_path / "tokens.safetensors"))
    assert words_of(again) == words_of(text) and again.special == text.special


def test_headings_and_paragraphs_begin_documents(vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "wiki.txt"
    path.write_text(" = Cat = \n \n The cat sat . On the <unk> ! dog \n = = Mat = = \n mat @-@ mat . \n dog \n")
    first, second = ["the cat sat .", "on the [UNK] !", "dog"], ["mat - mat ."]
    assert words_of(tokenize(path, vocabulary, documents="sections")) == [first, [*second, "dog"]]
    assert words_of(tokenize(path, vocabulary, documents="articles")) == [[*first, *second, "dog"]]
    assert words_of(tokenize(path, vocabulary, documents="paragraphs")) == [first, second, ["dog"]]


def test_lines_end_as_in_any_text_file(vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"the cat\r\n\r\ndog\ron\r\r\nmat")
    assert words_of(tokenize(path, vocabulary)) == [["the cat"], ["dog", "on"], ["mat"]]


def test_a_text_has_no_special_tokens_of_its_own(vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the [SEP] cat [MASK] [CLS][PAD] <unk> [UNK]\n")
    assert words_of(tokenize(path, vocabulary)) == [["the" + 3 * " [UNK]" + " cat" + 11 * " [UNK]"]]


def test_a_vocabulary_has_as_many_tokens_as_lines(vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the cat\n")
    vocabulary.write_text("\n".join([*WORDS, "the", "bird"]) + "\n")
    text = tokenize(path, vocabulary)
    assert text.vocabulary == len(WORDS) + 2
    assert text.tokens.tolist() == [len(WORDS), WORDS.index("cat")]  # of the later line, as in Hugging Face's


def test_what_cannot_be_tokenised_is_refused(vocabulary: Path, tmp_path: Path) -> None:
    empty, other, binary = tmp_path / "empty.txt", tmp_path / "other.txt", tmp_path / "binary.txt"
    empty.write_text("\n\n")
    other.write_text("the\ncat\n")
    binary.write_bytes(b"the cat\n" * 5000 + b"cat \xff\xfe")  # beyond what a decoder takes at once
    with pytest.raises(ValueError, match=r"empty\.txt: no text"):
        tokenize(empty, vocabulary)
    with pytest.raises(ValueError, match=r"other\.txt: no vocabulary of BERT.* lacks \[PAD\], \[CLS\]"):
        tokenize(other, other)
    with pytest.raises(ValueError, match=r"binary\.txt: not text in UTF-8: .* in line 5001, byte 5"):
        tokenize(binary, vocabulary)
    with pytest.raises(FileNotFoundError):
        tokenize(tmp_path / "nowhere.txt", vocabulary)
    with pytest.raises(ValueError, match="choose from lines, paragraphs"):
        tokenize(other, vocabulary, documents="pages")  # type: ignore[arg-type]


def test_a_vocabulary_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else: even without the package `tokenizers`, and without text."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    binary, text, out = tmp_path / "binary.txt", tmp_path / "text.txt", tmp_path / "tokens.safetensors"
    binary.write_bytes(b"[PAD]\n\xff\xfe\n")
    text.write_text("the cat\n")
    wrong: list[tuple[Path, type[Exception], str]] = [
        (tmp_path / "nowhere.txt", FileNotFoundError, "nowhere.txt"),
        (tmp_path, IsADirectoryError, tmp_path.name),
        (binary, ValueError, "binary.txt: not text in UTF-8: invalid start byte in line 2, byte 1"),
    ]
    closed = tmp_path / "closed.txt"
    closed.write_text("[PAD]\n")
    closed.chmod(0)
    if not os.access(closed, os.R_OK):  # the superuser may read everything
        wrong.append((closed, PermissionError, "closed.txt"))
    for vocabulary, error, message in wrong:
        with pytest.raises(error, match=re.escape(message)):
            tokenize(text, vocabulary)
        assert tessera.text._main([str(text), "--vocabulary", str(vocabulary), "--out", str(out)]) == 1
        said = capsys.readouterr()
        assert message in said.err and said.err.count("\n") == 1 and said.out == ""
        assert not out.exists()


def test_a_missing_package_is_named(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install tokenizers"):
        tokenize(vocabulary, vocabulary)


def test_the_command_writes_a_file(vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "text.txt", tmp_path / "tokens.safetensors"
    source.write_text("the cat\n\nthe dog sat\n")
    command = [sys.executable, "-m", "tessera.text", str(source), "--vocabulary", str(vocabulary), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "5 tokens in 2 sentences of 2 documents" in done.stdout
    assert len(TokenText.load(str(out)).tokens) == 5
    assert tessera.text._main([str(out), "--vocabulary", str(source), "--out", str(tmp_path / "other")]) == 1
    assert "it lacks [PAD]" in capsys.readouterr().err
    for taken in (source, vocabulary):
        before = taken.read_bytes()
        assert tessera.text._main([str(source), "--vocabulary", str(vocabulary), "--out", str(taken)]) == 1
        assert f"--out would be written over {taken}" in capsys.readouterr().err
        assert taken.read_bytes() == before


def test_texts_that_do_not_fit_are_refused() -> None:
    special = {"pad": 0, "cls": 1, "sep": 2, "mask": 3}
    with pytest.raises(ValueError, match="token 1 is 20, beyond the vocabulary of 10"):
        TokenText("t", 10, special, np.array([5, 20]), np.array([0, 2]), np.array([0, 1]))
    with pytest.raises(ValueError, match="special tokens are pad, cls, sep and mask"):
        TokenText("t", 10, {"pad": 0}, np.array([5]), np.array([0, 1]), np.array([0, 1]))


def test_arrays_of_a_text_cannot_be_written() -> None:
    text = synthetic_text(vocabulary=60, documents=4)
    for array in (text.tokens, text.sentences, text.documents):
        with pytest.raises(ValueError, match="read-only"):
            array[1] = 2**31


def test_numbers_out_of_range_are_refused() -> None:
    for documents in (0, 2**31):
        with pytest.raises(ValueError, match="documents; synthetic text has 1 to"):
            synthetic_text(documents=documents)
    text = synthetic_text(vocabulary=60, documents=20)
    for fraction in (float("nan"), -1, 0, 1, 2):
        with pytest.raises(ValueError, match="fraction of documents held out"):
            text.split(fraction)
    data = PretrainingData(text, 32)
    for made in (lambda: data.shape(0), lambda: data.batch(0, 0, 0)):
        with pytest.raises(ValueError, match="a batch of 0 packs"):
            made()


def test_threads_may_take_batches_at_once() -> None:
    text = synthetic_text(vocabulary=60, documents=200, seed=1)
    data = PretrainingData(text, 32, seed=2)
    places = [(epoch, first) for first in range(0, data.packs, 16) for epoch in range(3)]
    wanted = [PretrainingData(text, 32, seed=2).batch(*place, 16) for place in places]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda place: data.batch(*place, 16), places)
        for batch, other in zip(found, wanted, strict=True):
            for name, array in batch.items():
                np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize("packed", [True, False])
def test_batches_are_what_the_model_takes(packed: bool) -> None:
    text = synthetic_text(vocabulary=60, documents=40, seed=1)
    data = PretrainingData(text, 32, packed=packed, seed=2)
    assert (data.packs < data.sequences) == packed
    shape = data.shape(4)
    batch = data.batch(1, 0, 4)
    assert {name: np.shape(array)[1] for name, array in batch.items()} == {
        "input_ids": 32,
        "token_type_ids": 32,
        "position_ids": 32,
        "sequence_ids": 32,
        "masked_lm_positions": shape["predictions"],
        "masked_lm_labels": shape["predictions"],
        "cls_positions": shape["sequences"],
        "next_sentence_labels": shape["sequences"],
    }
    assert np.isin(np.asarray(batch["masked_lm_labels"]), [-100, *range(4, 60)]).all()
    for name, array in PretrainingData(text, 32, packed=packed, seed=2).batch(1, 0, 4).items():
        np.testing.assert_array_equal(array, batch[name])


def test_packs_have_the_losses_of_padded_sequences() -> None:
    text = synthetic_text(vocabulary=60, documents=40, seed=1)
    config = tg.BertConfig.named("tiny")
    config.vocab_size = text.vocabulary
    losses = []
    for packed in (True, False):
        data = PretrainingData(text, 48, packed=packed, seed=2)
        bert = tg.bert_for_pretraining(config, **data.shape(data.packs), average="sequence")
        bert.graph.output("loss", bert.loss)
        losses.append(float(bert.graph.session(seed=3).run(**data.batch(0, 0, data.packs))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
