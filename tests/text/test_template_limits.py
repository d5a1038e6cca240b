"""Hostile templates: no way out of the sandbox, and an end to loops and memory."""

from __future__ import annotations

import pytest

from headway.text.chat_template import ChatTemplate, ChatTemplateError

BOMBS = {
    "nested loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": (
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "repeated text": "{{ 'x' * 10**9 }}",
    "repeated list": "{{ [0] * 10**9 }}",
    "doubled text": (
        "{% set n = namespace(a='x') %}"
        "{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
    ),
    "added text": (
        "{% set n = namespace(a='x') %}"
        "{% for i in range(60) %}{% set n.a = n.a + n.a %}{% endfor %}"
    ),
    "nested lists": (
        "{% set n = namespace(a=[0]) %}"
        "{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}"
    ),
    "nested lists as JSON": (
        "{% set n = namespace(a=[0]) %}"
        "{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a | tojson }}"
    ),
    "squared number": (
        "{% set n = namespace(a=3) %}{% for i in range(60) %}{% set n.a = n.a * n.a %}{% endfor %}"
    ),
    "power": "{{ 9 ** (9 ** 9) }}",
    "padding filter": "{{ 'x' | center(10**9) }}",
    "padding method": "{{ 'x'.ljust(10**9) }}",
    "indent": "{{ [1] | tojson(indent=10**9) }}",
    "percent width": "{{ '%999999999d' % 1 }}",
    "percent width from a value": "{{ '%*d' % (999999999, 1) }}",
    "format width": "{{ '{:>999999999}'.format(1) }}",
    "format width from a value": "{{ '{:>{}}'.format(1, 999999999) }}",
    "replace": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "replace filter": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "join": "{{ ('y' * 100000).join('x' * 100000) }}",
    "join filter": "{{ range(99999) | join('y' * 100000) }}",
}

ESCAPES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of a function": "{{ cycler.__init__.__globals__ }}",
    "globals of ours": "{{ raise_exception.__globals__['json'] }}",
    "globals of a closure": "{{ strftime_now.__closure__[0] }}",
    "attr filter": "{{ ('' | attr('__class__')).__mro__ }}",
    "attribute of map": "{{ ['']| map(attribute='__class__.__mro__') | list | first }}",
    "format string": "{{ '{0.__class__.__mro__}'.format('') }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "changing a message": "{{ messages.append(1) }}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", list(BOMBS))
def test_bombs_are_stopped(name: str) -> None:
    with pytest.raises(ChatTemplateError):
        ChatTemplate(BOMBS[name]).render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("name", list(ESCAPES))
def test_there_is_no_way_out(name: str) -> None:
    with pytest.raises(ChatTemplateError):
        ChatTemplate(ESCAPES[name]).render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("name", ["__globals__", "__code__", "__closure__", "__self__"])
def test_what_is_hidden_prints_as_nothing(name: str) -> None:
    assert ChatTemplate("{{ raise_exception." + name + " }}").render([]) == ""


def test_a_very_long_chat_is_within_the_limits() -> None:
    source = "{% for m in messages %}{{ m.role ~ m.content | trim | upper }}{% endfor %}"
    messages = [{"role": "user", "content": "x" * 100}] * 20_000
    assert len(ChatTemplate(source).render(messages)) == 20_000 * 104


def test_every_render_has_a_budget_of_its_own() -> None:
    template = ChatTemplate("{% for a in range(90000) %}{% endfor %}done")
    assert [template.render([]) for _ in range(15)] == ["done"] * 15


def test_loop_variables_work_in_paid_loops() -> None:
    source = (
        "{% for x in [3, 1, 2] | sort if x > 1 %}"
        "{{ loop.index ~ '/' ~ loop.length ~ ':' ~ x ~ (';' if loop.last else ',') }}{% endfor %}"
        "{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% else %}none{% endfor %}"
        "{% for x in [] %}{% else %}!{% endfor %}{% for x in missing %}{% endfor %}"
        "{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}"
    )
    assert ChatTemplate(source).render([]) == "1/2:2,2/2:3;a=1!12"
