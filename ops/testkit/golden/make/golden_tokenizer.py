# SPDX-License-Identifier: MIT OR Apache-2.0

"""Tiny byte-level BPE tokenizers in the shape of the published ones, plus chat templates and cases."""

import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from golden_common import write_json

BASE = 512  # published vocabularies have 200000 BPE entries followed by 64 added tokens; here 512 + 64
VOCAB = BASE + 64

SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# offset from 200000 in the published vocabulary -> (text, special)
KNOWN = {
    4: ("<fim_pad>", True),
    5: ("<reponame>", True),
    19: ("]~b]", True),
    20: ("[e~[", True),
    25: ("]<]image[>[", True),
    26: ("]<]video[>[", True),
    34: ("]~!b[", True),
    50: ("<think>", False),
    51: ("</think>", False),
    52: ("<minimax:tool_call>", False),
    53: ("</minimax:tool_call>", False),
}
KNOWN_M3 = {
    58: ("]<]minimax[>[", False),
    59: ("<mm:think>", False),
    60: ("</mm:think>", False),
}

CORPUS = """
A router reads each token and picks a few experts. The chosen experts add their answers together.
Every layer normalises its input, attends over the earlier tokens, and then runs the expert network.
The index branch gives each block of keys a score and keeps only the best blocks for the main branch.
Water runs down the hill, past the old mill, and under the stone bridge near the market square.
In the morning the baker opens the shop, lights the oven, and counts the loaves on the long table.
Seven sailors sang songs while the small ship crossed the quiet sea under a silver moon.
How many blocks were read? Sixteen blocks were read, and one hundred and twelve were skipped.
She wrote: "it's late, we've missed the train, and they'll never wait for us." He didn't answer.
fn main() { let total: u32 = (1..=10).filter(|n| n % 2 == 0).sum(); println!("{total}"); }
for index in range(0, 128):
    value = table[index] * 0.5 + offset
    if value >= 7.0:
        value = 7.0
    print(index, value)
{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3, "units": null}}
2024-01-31, 3.14159, 1e-6, 0x7F, 4096 tokens, 50% of 200 is 100.
Uber die Brucke, uber den Fluss; cafe au lait, naive facade, jalapeno.
今天天气很好，我们去公园散步。明天可能会下雨，请带上雨伞。
専門家は入力ごとに選ばれ、その出力は重みを付けて足し合わされる。
Привет, мир! Сегодня хороший день для прогулки.
The sum of squares grows faster than the sum of numbers, which grows faster than the count of numbers.
Long contexts need short memories: keep what matters, drop what does not, and look again when asked.
"""

# Prompt text, written for this purpose; it is repeated with changing numbers to make a long prompt.
PARAGRAPHS = [
    "Note {n}. The index branch scores every block of keys, the main branch reads only the best ones, and block {n} is kept.",
    "In the morning the baker opens the shop, counts {n} loaves, and writes the number on the long table near the oven.",
    "Question {n}: how many experts does the router pick for a token, and how are their answers added together?",
    "The small ship crossed the quiet sea in {n} days; seven sailors sang songs and the silver moon was high.",
    "for index in range({n}): value = table[index] * 0.5 + offset; print(index, value)",
    "今天是第 {n} 天，天气很好，我们去公园散步。",
]


def long_text(target_paragraphs: int, start: int = 1) -> str:
    out = []
    for i in range(target_paragraphs):
        out.append(PARAGRAPHS[i % len(PARAGRAPHS)].format(n=start + 3 * i))
    return "\n".join(out)


def build_tokenizer(m3: bool) -> Tokenizer:
    tok = Tokenizer(models.BPE(unk_token=None, byte_fallback=False, ignore_merges=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    tok.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=BASE, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tok.train_from_iterator([CORPUS], trainer)
    assert tok.get_vocab_size() == BASE, tok.get_vocab_size()
    known = dict(KNOWN)
    if m3:
        known.update(KNOWN_M3)
    added = []
    for off in range(64):
        text, special = known.get(off, (f"<reserved_{off}>", off < 50))
        added.append(AddedToken(text, special=special, normalized=False, single_word=False, lstrip=False, rstrip=False))
    for a in added:  # one by one so that ids follow the table
        (tok.add_special_tokens if a.special else tok.add_tokens)([a])
    assert tok.get_vocab_size() == VOCAB
    for off, (text, _) in known.items():
        assert tok.token_to_id(text) == BASE + off, (text, tok.token_to_id(text))
    return tok


TEMPLATE_M27 = r"""{#- Conversation layout of the M2 family, written for the tiny test checkpoints. -#}
{%- set call_open = '<minimax:tool_call>' -%}
{%- set call_close = '</minimax:tool_call>' -%}
{%- macro plain(content) -%}
{%- if content is string -%}
{{ content }}
{%- elif content is iterable and content is not mapping -%}
{%- for part in content -%}
{%- if part is mapping and part.type == 'text' -%}
{{- part.text }}
{%- elif part is string -%}
{{- part }}
{%- endif -%}
{%- endfor -%}
{%- elif content is none -%}
{%- else -%}
{{- content }}
{%- endif -%}
{%- endmacro -%}
{%- macro tool_lines(tool_list) -%}
{%- for tool in tool_list -%}
<tool>{{ tool.function | tojson(ensure_ascii=False) }}</tool>
{% endfor -%}
{%- endmacro -%}
{%- set turns = messages -%}
{%- set first_system = none -%}
{%- if messages and messages[0].role == 'system' -%}
{%- set first_system = messages[0] -%}
{%- set turns = messages[1:] -%}
{%- endif -%}
{%- set state = namespace(last_user=-1, call_name=none) -%}
{%- for m in turns -%}
{%- if m.role == 'user' -%}
{%- set state.last_user = loop.index0 -%}
{%- endif -%}
{%- endfor -%}
{{- ']~!b[' ~ ']~b]system' ~ '\n' }}
{%- if first_system and first_system.content -%}
{{- plain(first_system.content) }}
{%- else -%}
{{- 'You are a helpful assistant.' }}
{%- endif -%}
{%- if first_system and first_system.current_date -%}
{{- '\n' ~ 'Current date: ' ~ first_system.current_date }}
{%- endif -%}
{%- if tools -%}
{{- '\n\n# Tools\nThese tools can be called:\n\n<tools>\n' }}
{{- tool_lines(tools) }}
{{- '</tools>' }}
{%- endif -%}
{{- '[e~[\n' }}
{%- for message in turns -%}
{%- if message.role == 'assistant' -%}
{{- ']~b]ai' ~ '\n' }}
{%- set thought = '' -%}
{%- set text = plain(message.content) -%}
{%- if message.reasoning_content is string -%}
{%- set thought = message.reasoning_content -%}
{%- elif '</think>' in text -%}
{%- set thought = text.split('</think>')[0].strip('\n').split('<think>')[-1].strip('\n') -%}
{%- set text = text.split('</think>')[-1].strip('\n') -%}
{%- endif -%}
{%- if thought and loop.index0 > state.last_user -%}
{{- '<think>' ~ '\n' ~ thought ~ '\n' ~ '</think>' ~ '\n\n' }}
{%- endif -%}
{%- if text -%}
{{- text }}
{%- endif -%}
{%- if message.tool_calls -%}
{{- '\n' ~ call_open ~ '\n' }}
{%- for call in message.tool_calls -%}
{%- set f = call.function if call.function else call -%}
{{- '<invoke name="' ~ f.name ~ '">\n' }}
{%- for k, v in f.arguments.items() -%}
{{- '<parameter name="' ~ k ~ '">' }}
{{- v if v is string else v | tojson(ensure_ascii=False) }}
{{- '</parameter>\n' }}
{%- endfor -%}
{{- '</invoke>\n' }}
{%- set state.call_name = f.name -%}
{%- endfor -%}
{{- call_close }}
{%- else -%}
{%- set state.call_name = none -%}
{%- endif -%}
{{- '[e~[\n' }}
{%- elif message.role == 'tool' -%}
{%- if state.call_name is none -%}
{{- raise_exception('a tool message needs a tool call before it') }}
{%- endif -%}
{%- if loop.first or turns[loop.index0 - 1].role != 'tool' -%}
{{- ']~b]tool' }}
{%- endif -%}
{{- '\n<response>' ~ plain(message.content) ~ '</response>' }}
{%- if loop.last or turns[loop.index0 + 1].role != 'tool' -%}
{{- '[e~[\n' }}
{%- endif -%}
{%- elif message.role == 'user' -%}
{{- ']~b]user' ~ '\n' ~ plain(message.content) ~ '[e~[\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- ']~b]ai' ~ '\n' ~ '<think>' ~ '\n' }}
{%- endif -%}
"""

TEMPLATE_M3 = r"""{#- Conversation layout of M3, written for the tiny test checkpoints. -#}
{%- set ns_token = ']<]minimax[>[' -%}
{%- set think_open = '<mm:think>' -%}
{%- set think_close = '</mm:think>' -%}
{%- macro xml(value) -%}
{%- if value is mapping -%}
{%- for k, v in value.items() if v is not none -%}
{{ ns_token }}<{{ k }}>{{ xml(v) }}{{ ns_token }}</{{ k }}>
{%- endfor -%}
{%- elif value is iterable and value is not string -%}
{%- for item in value -%}
{{ ns_token }}<item>{{ xml(item) }}{{ ns_token }}</item>
{%- endfor -%}
{%- elif value is none -%}
{%- elif value is boolean -%}
{{ value | tojson }}
{%- else -%}
{{ value }}
{%- endif -%}
{%- endmacro -%}
{%- macro plain(content) -%}
{%- if content is string -%}
{{ content }}
{%- elif content is iterable and content is not mapping -%}
{%- for part in content -%}
{%- if part is mapping and part.type == 'text' -%}
{{- part.text }}
{%- elif part is mapping and part.type == 'image' -%}
{{- ']<]image[>[' }}
{%- elif part is mapping and part.type == 'video' -%}
{{- ']<]video[>[' }}
{%- elif part is string -%}
{{- part }}
{%- endif -%}
{%- endfor -%}
{%- elif content is none -%}
{{- '' }}
{%- else -%}
{{- content }}
{%- endif -%}
{%- endmacro -%}
{%- set root = none -%}
{%- set developer = none -%}
{%- set turns = messages -%}
{%- if turns and turns[0].role == 'root' -%}
{%- set root = turns[0] -%}
{%- set turns = turns[1:] -%}
{%- endif -%}
{%- if turns and turns[0].role in ['system', 'developer'] -%}
{%- set developer = turns[0] -%}
{%- set turns = turns[1:] -%}
{%- endif -%}
{%- set mode = thinking_mode if thinking_mode is defined else 'adaptive' -%}
{{- ']~!b[' ~ ']~b]system' ~ '\n' }}
{{- plain(root.content) if root and root.content else 'You are a test model.' }}
{{- '\n\n<thinking_instructions>\nCurrent thinking mode: ' ~ mode ~ '.\n</thinking_instructions>' }}
{{- '[e~[\n' }}
{{- ']~b]developer' ~ '\n' }}
{{- plain(developer.content) if developer and developer.content else 'You are a helpful assistant.' }}
{%- if tools -%}
{{- '\n\n# Tools\nThese tools can be called:\n\n<tools>\n' }}
{%- for tool in tools -%}
{{- '<tool>' ~ (tool.function | tojson(ensure_ascii=False)) ~ '</tool>\n' }}
{%- endfor -%}
{{- '</tools>' }}
{%- endif -%}
{{- '[e~[\n' }}
{%- set state = namespace(call=false) -%}
{%- for message in turns -%}
{%- if message.role == 'assistant' -%}
{{- ']~b]ai' ~ '\n' }}
{%- set thought = '' -%}
{%- set text = plain(message.content) -%}
{%- if message.reasoning_content is string -%}
{%- set thought = message.reasoning_content -%}
{%- elif think_close in text -%}
{%- set thought = text.split(think_close)[0].split(think_open)[-1].strip('\n') -%}
{%- set text = text.split(think_close)[-1].strip('\n') -%}
{%- endif -%}
{{- (think_open ~ thought ~ think_close) if thought else think_close }}
{{- text }}
{%- set state.call = false -%}
{%- if message.tool_calls -%}
{{- ns_token ~ '<tool_call>\n' }}
{%- for call in message.tool_calls -%}
{%- set f = call.function if call.function else call -%}
{{- ns_token ~ '<invoke name="' ~ f.name ~ '">' }}
{%- for k, v in f.arguments.items() if v is not none -%}
{{- ns_token ~ '<' ~ k ~ '>' ~ xml(v) ~ ns_token ~ '</' ~ k ~ '>' }}
{%- endfor -%}
{{- ns_token ~ '</invoke>\n' }}
{%- endfor -%}
{{- ns_token ~ '</tool_call>' }}
{%- set state.call = true -%}
{%- endif -%}
{{- '[e~[\n' }}
{%- elif message.role == 'tool' -%}
{%- if not state.call -%}
{{- raise_exception('a tool message needs a tool call before it') }}
{%- endif -%}
{%- if loop.first or turns[loop.index0 - 1].role != 'tool' -%}
{{- ']~b]tool' }}
{%- endif -%}
{{- '\n<response>' ~ plain(message.content) ~ '</response>' }}
{%- if loop.last or turns[loop.index0 + 1].role != 'tool' -%}
{{- '[e~[\n' }}
{%- endif -%}
{%- elif message.role == 'user' -%}
{{- ']~b]user' ~ '\n' ~ plain(message.content) ~ '[e~[\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- ']~b]ai' ~ '\n' }}
{%- if mode == 'enabled' -%}
{{- think_open }}
{%- elif mode == 'disabled' -%}
{{- think_close }}
{%- endif -%}
{%- endif -%}
"""

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather for a city (城市).",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces  ",
    "It's late, we've missed the train.",
    "1234567 and 3.14159e-6",
    "line one\nline two\r\n\r\nline three\n",
    "for i in range(10):\n    print(i)\n",
    "今天天气很好，我们去公园散步。",
    "専門家は入力ごとに選ばれる",
    "Привет, мир!",
    "naïve café — “quotes” … 🦀🚀 é",
    "tab\tand \u00a0nbsp and \u200bzero width",
    "]~!b[]~b]system\nYou are a test.[e~[\n",
    "<think>\nshort thought\n</think>\n\nanswer",
    "<minimax:tool_call>\n<invoke name=\"x\">\n</invoke>\n</minimax:tool_call>",
    "]<]image[>[ then ]<]video[>[",
]
TEXTS_M3 = ["<mm:think>plan</mm:think>done", "]<]minimax[>[<tool_call>\n]<]minimax[>[</tool_call>"]


def chat_cases(m3: bool):
    calls = [{"function": {"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}}]
    nested = [
        {
            "function": {
                "name": "plan_trip",
                "arguments": {
                    "stops": [{"city": "Oslo", "nights": 2}, {"city": "Bergen", "nights": 1}],
                    "cheap": True,
                    "note": "rainy day",
                },
            }
        }
    ]
    cases = [
        {"name": "single_user", "messages": [{"role": "user", "content": "How many blocks were read?"}]},
        {
            "name": "system_and_history",
            "messages": [
                {"role": "system", "content": "Answer in one short line."},
                {"role": "user", "content": "Say hello."},
                {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting is asked for."},
                {"role": "user", "content": [{"type": "text", "text": "Now in "}, {"type": "text", "text": "Norwegian."}]},
            ],
        },
        {
            "name": "no_generation_prompt",
            "messages": [
                {"role": "user", "content": "2+2?"},
                {"role": "assistant", "content": "4"},
            ],
            "add_generation_prompt": False,
        },
        {
            "name": "tools_round_trip",
            "messages": [
                {"role": "user", "content": "Weather in Oslo?"},
                {"role": "assistant", "content": "", "reasoning_content": "I need the tool.", "tool_calls": calls},
                {"role": "tool", "content": "{\"celsius\": -3}"},
                {"role": "tool", "content": "{\"celsius\": -4}"},
            ],
            "tools": [WEATHER_TOOL],
        },
        {
            "name": "nested_arguments",
            "messages": [
                {"role": "user", "content": "Plan a trip."},
                {"role": "assistant", "content": "Here is a plan.", "tool_calls": nested},
                {"role": "tool", "content": "ok"},
            ],
            "tools": [WEATHER_TOOL],
        },
    ]
    if m3:
        for mode in ("enabled", "disabled", "adaptive"):
            cases.append(
                {
                    "name": f"thinking_{mode}",
                    "messages": [
                        {"role": "root", "content": "Root instructions."},
                        {"role": "developer", "content": "Developer instructions."},
                        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
                    ],
                    "kwargs": {"thinking_mode": mode},
                }
            )
    else:
        cases.append(
            {
                "name": "inline_think_is_split",
                "messages": [
                    {"role": "user", "content": "2+2?"},
                    {"role": "assistant", "content": "<think>\nadd them\n</think>\n\n4"},
                ],
            }
        )
    return cases


def write_tokenizer_files(out_dir: str, m3: bool):
    from transformers import PreTrainedTokenizerFast

    tok = build_tokenizer(m3)
    os.makedirs(out_dir, exist_ok=True)
    tok.save(os.path.join(out_dir, "tokenizer.json"), pretty=False)
    template = TEMPLATE_M3 if m3 else TEMPLATE_M27
    with open(os.path.join(out_dir, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(template)
    added = {}
    data = json.loads(tok.to_str())
    for a in data["added_tokens"]:
        added[str(a["id"])] = {k: a[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")}
    bos = "]~b]" if m3 else "]~!b["
    write_json(
        os.path.join(out_dir, "tokenizer_config.json"),
        {
            "added_tokens_decoder": added,
            "add_prefix_space": False,
            "bos_token": bos,
            "clean_up_tokenization_spaces": False,
            "eos_token": "[e~[",
            "model_max_length": 40960000,
            "tokenizer_class": "GPT2Tokenizer",
            "unk_token": "<reserved_22>",
            "chat_template": template,
        },
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(out_dir, "tokenizer.json"), bos_token=bos, eos_token="[e~["
    )
    fast.chat_template = template
    texts = []
    for t in TEXTS + (TEXTS_M3 if m3 else []):
        ids = tok.encode(t, add_special_tokens=False).ids
        texts.append(
            {
                "text": t,
                "ids": ids,
                "decoded": tok.decode(ids, skip_special_tokens=False),
                "decoded_skip_special": tok.decode(ids, skip_special_tokens=True),
            }
        )
    chats = []
    for c in chat_cases(m3):
        kw = dict(c.get("kwargs", {}))
        agp = c.get("add_generation_prompt", True)
        rendered = fast.apply_chat_template(
            c["messages"], tools=c.get("tools"), tokenize=False, add_generation_prompt=agp, **kw
        )
        chats.append(
            {
                "name": c["name"],
                "messages": c["messages"],
                "tools": c.get("tools"),
                "kwargs": kw,
                "add_generation_prompt": agp,
                "rendered": rendered,
                "ids": tok.encode(rendered, add_special_tokens=False).ids,
            }
        )
    errors = []
    bad = [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]
    try:
        fast.apply_chat_template(bad, tokenize=False, add_generation_prompt=True)
        raise AssertionError("template should have raised")
    except Exception as e:  # noqa: BLE001
        assert "a tool message needs" in str(e), e
        errors.append({"name": "tool_without_call", "messages": bad, "message_contains": "a tool message needs"})
    write_json(
        os.path.join(out_dir, "tokenizer_cases.json"), {"texts": texts, "chats": chats, "chat_errors": errors}
    )
    return tok, fast
