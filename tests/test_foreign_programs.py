"""Regular expressions and chat templates of strangers run within limits, in a child."""

import itertools
import re

import pytest

from groupwise.errors import ConfigError
from groupwise.foreign_programs import (
    CHARACTERS,
    LONGEST_PATTERN,
    TEXTS,
    OverLimit,
    ProgramFailed,
    _parts,
    check_pattern,
    last_match,
    last_matches,
    render,
)

MESSAGES = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}


def test_the_last_match_and_its_groups_are_found_in_each_text():
    assert last_match(r"#### (\d+)", "#### 1\n#### 22") == ["#### 22", "22"]
    assert last_matches("a|(b)", ["ab", "xa", "x"]) == [["b", "b"], ["a", None], None]
    assert last_match("A.B", "a\nb", re.IGNORECASE | re.DOTALL) == ["a\nb"]


def test_more_texts_than_fit_into_one_request_keep_their_order():
    texts = [f"{n}!" for n in range(2500)]
    assert last_matches(r"\d+", texts) == [[str(n)] for n in range(2500)]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(a+)+$", "a" * 60 + "b"), ("(?i)" + "[\\x00-\U0010ffff]" * 600, ""), ("(a|aa)+c", "a" * 60)],
)
def test_a_pattern_that_would_run_for_ever_is_refused_and_the_next_one_works(pattern, text):
    with pytest.raises(OverLimit, match="2 seconds of processor time"):
        last_match(pattern, text)
    assert last_match("b", "abc") == ["b"]


@pytest.mark.parametrize("pattern", ["(", "(?P<a>", "a{2,1}", "*"])
def test_what_is_not_a_regular_expression_is_refused(pattern):
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        check_pattern(pattern)


def test_a_pattern_of_absurd_length_or_depth_is_refused():
    with pytest.raises(ProgramFailed, match="longer than 10,000"):
        check_pattern("a" * 10_001)
    with pytest.raises(ProgramFailed, match="cannot run"):
        check_pattern("(" * 3000 + ")" * 3000)


def test_a_template_is_rendered_like_transformers_renders_it():
    template = "{% for m in messages %}{{ m.role }}: {{ m['content'] }}{% endfor %}{{ '>' if add_generation_prompt }}"
    assert render(template, MESSAGES) == "user: Hi>"


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'a' * 10000000000 }}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    ],
)
def test_a_template_that_would_run_for_ever_or_fill_the_memory_is_refused(template):
    with pytest.raises(OverLimit):
        render(template, MESSAGES)


@pytest.mark.parametrize("template", ["x" * 1_100_000, "{{ 'x' * 40000000 }}"], ids=["long", "multiplied"])
def test_a_template_that_writes_a_book_of_its_own_is_refused_but_long_conversations_are_not(template):
    with pytest.raises(OverLimit, match="characters; at most"):
        render(template, MESSAGES)
    book = {**MESSAGES, "messages": [{"role": "user", "content": "x" * 2_000_000}]}
    assert len(render("{{ messages[0].content }}", book)) == 2_000_000


@pytest.mark.parametrize(
    "template", ["{{ messages.__class__.__mro__ }}", "{% include '/etc/passwd' %}", "{{ raise_exception('no') }}", "{{"]
)
def test_a_template_cannot_leave_its_sandbox_and_says_why_it_fails(template):
    with pytest.raises(ProgramFailed):
        render(template, MESSAGES)


@pytest.mark.parametrize("sizes", [
    [], [0], [5], [1] * TEXTS, [1] * (TEXTS + 1), [1] * (2 * TEXTS + 1), [0] * (TEXTS + 1), [CHARACTERS],
    [CHARACTERS + 1], [CHARACTERS, 1], [CHARACTERS - 1, 1], [CHARACTERS - 1, 1, 1], [1, CHARACTERS, 1],
    [CHARACTERS + 1, CHARACTERS + 1],
], ids=lambda sizes: f"{len(sizes)} of {sum(sizes)}")  # fmt: skip
def test_texts_go_to_the_child_in_parts_that_are_as_large_as_they_may_be(sizes):
    texts = ["x" * size for size in sizes]
    parts = list(_parts(texts))
    assert [text for part in parts for text in part] == texts
    for part in parts:
        assert len(part) <= TEXTS
        assert len(part) <= 1 or sum(map(len, part)) <= CHARACTERS
    for part, following in itertools.pairwise(parts):
        assert len(part) == TEXTS or sum(map(len, part)) + len(following[0]) > CHARACTERS


def test_a_pattern_of_the_greatest_length_is_still_one():
    assert last_match("a?" * (LONGEST_PATTERN // 2 - 1) + "b?", "b") is not None
    with pytest.raises(ProgramFailed, match="longer than 10,000"):
        last_matches("a" * (LONGEST_PATTERN + 1), [])
    check_pattern("a" * LONGEST_PATTERN)
