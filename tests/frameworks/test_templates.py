"""What framework templates can say, and what they must never reach."""

from __future__ import annotations

import pytest

from airflow_training.frameworks.templates import (
    FrameworkTemplateError,
    check_expression,
    check_template,
    holds,
    render,
)

CONTEXT = {
    "role": "worker",
    "replicas": {"worker": 2},
    "roles": ["master", "worker"],
    "parameters": {"slots": 3, "name": "x"},
    "elastic": False,
    "hosts": lambda role: [f"{role}-0", f"{role}-1"],
    "indexes": lambda role: list(range(200)),
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain text", "plain text"),
        ("{{ role }}", "worker"),
        ("{{ hosts('ps') | join(',') }}", "ps-0,ps-1"),
        ("{{ roles | json }}", '["master","worker"]'),
        ("{{ parameters.slots * replicas.worker }}", "6"),
        ("{{ [parameters.slots // 4, 1] | max }}", "1"),
        ("{% for r in roles %}{{ loop.index }}={{ r }} {% endfor %}", "1=master 2=worker "),
        ("{% if elastic %}yes{% else %}no{% endif %}", "no"),
        ("$(TRAINING_INSTANCE_DIR)/x", "$(TRAINING_INSTANCE_DIR)/x"),
    ],
)
def test_renders(template, expected):
    assert render(template, CONTEXT) == expected


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{{ rolle }}", id="unknown-name"),
        pytest.param("{{ role.__class__ }}", id="private-attribute"),
        pytest.param("{{ ''.__class__.__mro__ }}", id="private-of-a-constant"),
        pytest.param("{{ role | attr('__class__') }}", id="attr-filter"),
        pytest.param("{{ range(9) }}", id="range"),
        pytest.param("{{ '%99999d' % 1 }}", id="formatting"),
        pytest.param("{{ 9 ** 9 ** 9 }}", id="power"),
        pytest.param("{% include 'x' %}", id="include"),
        pytest.param("{% import 'x' as x %}", id="import"),
        pytest.param("{% set x = 1 %}", id="set"),
        pytest.param("{% macro m() %}{% endmacro %}", id="macro"),
        pytest.param(
            "{% for a in roles %}{% for b in roles %}{% for c in roles %}x{% endfor %}"
            "{% endfor %}{% endfor %}",
            id="three-loops-inside-each-other",
        ),
        pytest.param("{{ role", id="broken"),
        pytest.param("{{ self }}", id="self"),
        pytest.param("{{ role.ljust(9999999999) }}", id="padding"),
        pytest.param("{{ '{:>9999999999}'.format(1) }}", id="format-string"),
        pytest.param("{{ '{0.__class__}'.format(role) }}", id="format-string-attributes"),
        pytest.param("{{ role.replace('', role).replace('', role) }}", id="growing"),
        pytest.param("{{ hosts('a')[0].encode() }}", id="method-of-an-answer"),
        pytest.param("{{ (hosts)('a') }}{{ role() }}", id="calling-a-value"),
        pytest.param("{{ parameters.slots.bit_length() }}", id="method-of-a-number"),
        pytest.param("{% for a in roles recursive %}{{ loop(roles) }}{% endfor %}", id="recursion"),
        pytest.param(
            "{% for a in 'xxx' %}{% for b in 'xxx' %}.{% endfor %}{% endfor %}", id="text"
        ),
        pytest.param("{% for a in parameters.name %}{{ a }}{% endfor %}", id="loop-over-a-value"),
        pytest.param("{% for a in roles + roles %}{{ a }}{% endfor %}", id="loop-over-a-sum"),
        pytest.param(
            "{% for a in roles %}{% for b in a %}{{ b }}{% endfor %}{% endfor %}", id="letters"
        ),
        pytest.param("{{ role }}" + "x" * 70_000, id="long"),
    ],
)
def test_refuses(template):
    with pytest.raises(FrameworkTemplateError):
        check_template(template)
    with pytest.raises(FrameworkTemplateError):
        render(template, CONTEXT)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{{ 'x' * 1000000000 }}", id="a-text-as-long-as-memory"),
        pytest.param("{{ parameters.nothing }}", id="undefined"),
        pytest.param("{{ parameters['__class__'] }}", id="private-subscript"),
        pytest.param("{{ 1 // 0 }}", id="division-by-zero"),
        pytest.param("{{ parameters.items }}", id="method-of-a-mapping"),
        pytest.param("{{ roles.copy }}", id="method-of-a-list"),
        pytest.param("{{ role.upper }}", id="method-of-a-text"),
        pytest.param("{{ hosts.cache }}", id="attribute-of-a-function"),
        pytest.param("{{ 9 * hosts('a') }}", id="many-lists"),
        pytest.param(
            "{% for i in indexes('worker') %}{% for j in indexes('worker') %}"
            + "x" * 1000
            + "{% endfor %}{% endfor %}",
            id="more-than-a-file-can-hold",
        ),
    ],
)
def test_refuses_when_it_comes_to_it(template):
    with pytest.raises(FrameworkTemplateError):
        render(template, CONTEXT)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("", True),
        ("elastic", False),
        ("not elastic and replicas.worker > 1", True),
        ("role == 'ps' or parameters.name == 'x'", True),
    ],
)
def test_conditions(condition, expected):
    assert holds(condition, CONTEXT) is expected


@pytest.mark.parametrize(
    "condition",
    ["rank == 0", "hosts('worker')", "elastic }}{{ 1", "elastic) }}{% include 'x' %}{{ (1"],
)
def test_conditions_see_only_what_is_known_before_a_run(condition):
    with pytest.raises(FrameworkTemplateError):
        check_expression(condition)
