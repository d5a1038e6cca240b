"""Templates in the manner of the well-known families, written for these tests."""

from __future__ import annotations

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

HEADERS = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = 'Be brief.' %}
{%- endif %}
{{- '<|head|>system<|/head|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n' }}
{{- system + '<|eot|>' }}
{%- for message in messages %}
    {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{%- endif %}
"""

TOOLS = """\
{%- set ns = namespace(calls=0) %}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<result>' + message.content + '</result><|im_end|>\\n' }}
        {%- continue %}
    {%- endif %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
    {%- for call in message.tool_calls or [] %}
        {%- set ns.calls = ns.calls + 1 %}
        {{- '\\n<call ' ~ ns.calls ~ '>' ~ call.function.name ~ ' ' }}
        {{- call.function.arguments | tojson(indent=2) ~ '</call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

ALTERNATING = """\
{{ bos_token }}
{%- for message in messages -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('roles must alternate user/assistant') }}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        [INST] {{ message.content }} [/INST]
    {%- else -%}
        {% generation %}{{ ' ' + message.content + eos_token }}{% endgeneration %}
    {%- endif -%}
{%- endfor -%}
"""

PARTS = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- for part in message.content %}
        {%- if part.type == 'text' %}{{- part.text }}{%- endif %}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

ALL = {
    "ChatML": CHATML,
    "headers": HEADERS,
    "tools": TOOLS,
    "alternating": ALTERNATING,
    "parts": PARTS,
}
