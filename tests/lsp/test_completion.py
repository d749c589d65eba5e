"""What is completed, held against what the compiler accepts."""

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.facts import facts, fields
from moedsl.lang import parser
from moedsl.lang.tokens import lexemes
from moedsl.lsp.document import Client
from moedsl.lsp.place import place
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.tables import table_of
from tests.lsp.lsp_ask import items, labels, written

RUN = "qwen3_235b_a22b\ngb200 x 256\nseq 128k\n"
CASES = table_of("lsp", "completion: offered")


@pytest.mark.parametrize("text", CASES)
def test_what_may_stand_here_is_offered(text: str) -> None:
    assert {*CASES[text]} <= {*labels(text)}


@pytest.mark.parametrize("text", ["# pin |", 'require a: tp < 3 because "pin |', "qwen3_30b_a3b |", "seq 4k |"])
def test_nothing_is_offered_where_nothing_may_stand(text: str) -> None:
    assert labels(text) == []


def test_the_values_of_an_axis_are_those_that_leave_a_legal_layout() -> None:
    """What is said to be legal compiles, what is said not to be does not; memory aside, so on a short sequence."""
    head = "qwen3_235b_a22b\ngb200 x 256\nseq 4k\npin pp=4 "
    found = {i.label: (i.detail or "").startswith("legal") for i in items(head + "tp=|")}
    assert {True, False} == {*found.values()}
    for value, legal in found.items():
        result = compile_source(Source("a.moe", f"{head}tp={value}\n"), "solve")
        refused = {d.id for d in result.diagnostics if d.is_error}
        assert bool(refused - {"std.memory.fits", "solve.does_not_fit"}) is not legal, (value, refused)


def test_a_pin_before_it_narrows_the_values() -> None:
    free = {i.label for i in items(RUN + "pin cp=|") if (i.detail or "").startswith("legal")}
    narrowed = {i.label for i in items(RUN + "pin tp=64 cp=|") if (i.detail or "").startswith("legal")}
    assert narrowed < free


def test_a_pin_is_offered_once() -> None:
    assert "tp" not in labels("pin tp=4 |") and "cp" in labels("pin tp=4 |")
    assert "tp" not in labels(RUN + "pin tp=4\npin |")


def test_any_field_that_a_run_may_set_can_be_reached() -> None:
    known = {p for p, f in fields.fields().items() if fields.is_writable(f.type)} - {*facts.facts_by_field()}
    for path in sorted(known - {"peft.params_to_save"})[::20]:
        assert path in labels(f"set {path}|")
    assert not {"model.num_layers", "model.activation_func"} & {*labels("set model.|")}


def test_the_words_of_a_field_are_those_of_its_annotation() -> None:
    assert {"flash", "fused", "unfused", "local", "auto"} <= {*labels("set model.attention_backend = |")}
    assert {"cosine", '"inverse-square-root"'} <= {*labels("set scheduler.lr_decay_style = |")}
    assert {"true", "false"} == {*labels("set optimizer.log_num_zeros_in_grad = |")}


def test_every_law_and_advice_can_be_allowed() -> None:
    collected = load_stdlib().collected
    assert collected is not None
    for r in collected.rules:
        if r.kind in ("require", "prefer"):
            assert r.id.removeprefix("std.") in labels(f"{RUN}allow {r.id.removeprefix('std.')}|")


@pytest.mark.parametrize(
    "text", ["pr|\n", "qwen|", "pin dis|", "sweep mic|", RUN + "allow mesh.he|", "set model.moe_z|", "vlm fre|"]
)
def test_what_is_offered_replaces_the_word(text: str) -> None:
    """A client without snippets gets text that parses, or that lacks only its value."""
    for after in written(text):
        _, found = parser.parse(Source("a.moe", after))
        assert all("ends too early" in d.message for d in found), after


def test_a_file_to_use_is_found(tmp_path: object) -> None:
    assert "own_hardware.moe" in labels(f'use "{ROOT / "examples"}/own|')


def test_snippets_are_left_out_for_a_client_without_them() -> None:
    for text in ("|", "pin |", "require |", "data |"):
        for item in items(text, Client()):
            assert "$" not in item.text_edit.new_text  # type: ignore[union-attr]


def test_what_is_offered_is_explained() -> None:
    for text in ("|", "model |", "pin |", "allow |", "set model.moe|", "require |"):
        bare = [i.label for i in items(RUN + text) if i.documentation is None and i.detail is None]
        assert bare == [], text


@pytest.mark.parametrize("path", rotation.some("next words", EXAMPLES, 4), ids=lambda p: p.stem)
def test_the_next_word_of_an_example_is_among_what_may_stand(path: object) -> None:
    """Cut before each word of an example, whatever follows gone: the terminals that the grammar takes hold the word."""
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    for word in lexemes(text):
        if word.kind == "word":
            at = place(text[: word.start], word.start)
            assert at.accepts & {word.text.upper(), "NAME", "WORD", "VERSION"}, (word, at)


@pytest.mark.parametrize("path", rotation.some("cut words", EXAMPLES, 4), ids=lambda p: p.stem)
def test_a_cut_example_is_completed_with_what_stood_there(path: object) -> None:
    """At every keyword and name of the compiler's own, the word is offered when its first two letters are typed."""
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    known = {
        *load_stdlib().models,
        *load_stdlib().hardware,
        "pin",
        "require",
        "seq",
        "dispatcher",
        "recompute",
        "batch",
    }
    for word in [w for w in lexemes(text) if w.kind == "word" and w.text in known][:12]:
        head = text[: word.start + 2]
        if place(text, word.start).texts == ("partition",):
            continue  # any text, here that of a GPU type
        assert word.text in labels(f"{head}|"), head[-60:]
