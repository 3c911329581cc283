// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the chat template of MiniMax-M3 needs: thinking modes, and each feature of Jinja that it uses, alone.

use std::time::SystemTime;

use model_minimax::text::{Chat, ChatTemplate, TemplateError, TextTokenizer, ThinkingMode};

fn golden(model: &str) -> ChatTemplate {
    ChatTemplate::from_dir(&op_testkit::golden::dir().join("models").join(model), SystemTime::now).unwrap()
}

/// Renders a template that looks at the variable `v` only.
fn render(source: &str, v: &str) -> Result<String, TemplateError> {
    let chat = Chat::single(None, "").with_variable("v", v).unwrap();
    ChatTemplate::from_source(source, SystemTime::now).unwrap().render(&chat)
}

#[track_caller]
fn check(source: &str, v: &str, expected: &str) {
    assert_eq!(render(source, v).unwrap(), expected);
}

#[test]
fn thinking_mode_opens_the_answer() {
    let template = golden("m3-tiny-bf16");
    let chat = || Chat::single(None, "Hello");
    for (mode, end) in [
        (ThinkingMode::Enabled, "]~b]ai\n<mm:think>"),
        (ThinkingMode::Disabled, "]~b]ai\n</mm:think>"),
        (ThinkingMode::Adaptive, "]~b]ai\n"),
    ] {
        let prompt = template.render(&chat().with_thinking(mode)).unwrap();
        assert!(prompt.ends_with(end), "{prompt}");
        assert!(prompt.contains(&format!("Current thinking mode: {mode}.")), "{prompt}");
        // The same through a variable, as a request of a chat API has it.
        let variable = chat().with_variable("thinking_mode", &format!("\"{mode}\"")).unwrap();
        assert_eq!(template.render(&variable).unwrap(), prompt);
        // It is about the answer to come: without one only the instructions differ.
        let prompt = template.render(&chat().with_thinking(mode).with_generation_prompt(false)).unwrap();
        assert!(prompt.ends_with("]~b]user\nHello[e~[\n"), "{prompt}");
    }
    let default = template.render(&chat()).unwrap();
    assert_eq!(default, template.render(&chat().with_thinking(ThinkingMode::Adaptive)).unwrap());
}

#[test]
fn thinking_marks_are_tokens_and_stay_visible() {
    let tokenizer = TextTokenizer::from_dir(&op_testkit::golden::dir().join("models/m3-tiny-bf16")).unwrap();
    for (mark, id) in [("<mm:think>", 571), ("</mm:think>", 572), ("]<]minimax[>[", 570)] {
        assert_eq!(tokenizer.encode(mark).unwrap(), [id]);
        assert_eq!(tokenizer.decode(&[id], true), mark);
    }
}

#[test]
fn thinking_modes_have_names() {
    for mode in [ThinkingMode::Enabled, ThinkingMode::Disabled, ThinkingMode::Adaptive] {
        assert_eq!(mode.name().parse::<ThinkingMode>().unwrap(), mode);
    }
    let error = "on".parse::<ThinkingMode>().unwrap_err();
    assert_eq!(error.to_string(), r#"unknown thinking mode "on"; known are "enabled", "disabled" and "adaptive""#);
}

#[test]
fn thinking_mode_is_refused_by_a_template_without_modes() {
    let template = golden("m27-tiny-bf16");
    let chat = Chat::single(None, "Hello").with_thinking(ThinkingMode::Disabled);
    let error = template.render(&chat).unwrap_err();
    assert!(matches!(error, TemplateError::NoThinkingModes { mode: ThinkingMode::Disabled }), "{error:?}");
    assert!(error.to_string().contains("it never reads `thinking_mode`"), "{error}");
    // A variable of that name that the template sets itself is no choice.
    let own = "{% set thinking_mode = 'enabled' %}{{ thinking_mode }}";
    let own = ChatTemplate::from_source(own, SystemTime::now).unwrap();
    assert!(matches!(own.render(&chat), Err(TemplateError::NoThinkingModes { .. })));
}

#[test]
fn history_keeps_thoughts_and_marks_turns_without_one() {
    let template = golden("m3-tiny-bf16");
    let turns = r#"[{"role":"user","content":"a"},
        {"role":"assistant","content":"one","reasoning_content":"because"},
        {"role":"user","content":"b"},
        {"role":"assistant","content":"<mm:think>\nhm\n</mm:think>\n\ntwo"},
        {"role":"user","content":"c"},
        {"role":"assistant","content":"three"}]"#;
    let prompt = template.render(&Chat::from_json(turns).unwrap().with_generation_prompt(false)).unwrap();
    for turn in ["<mm:think>because</mm:think>one[e~[", "<mm:think>hm</mm:think>two[e~[", "\n</mm:think>three[e~["] {
        assert!(prompt.contains(turn), "no {turn:?} in\n{prompt}");
    }
}

#[test]
fn recursive_macros() {
    let source = "{%- macro tree(v, depth=0) -%}
{%- if v is mapping -%}
{%- for k, x in v.items() -%}<{{ k }}{{ depth }}>{{ tree(x, depth + 1) }}</{{ k }}>{%- endfor -%}
{%- elif v is iterable and v is not string -%}
{%- for x in v -%}[{{ tree(x, depth + 1) }}]{%- endfor -%}
{%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{{ tree(v) }}";
    check(source, r#"{"z":[1,{"a":"x y"}],"b":{"c":[]}}"#, "<z0>[1][<a2>x y</a>]</z><b0><c1></c></b>");
    // As deep as the parser of the messages lets anything be; deeper ones end in an error, not in a crash.
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    match render(source, &deep(120)) {
        Ok(text) => assert_eq!(text, deep(120)),
        Err(error) => assert!(matches!(error, TemplateError::Render { .. }), "{error}"),
    }
    let endless = "{%- macro f(x) -%}{{ f(x + 1) }}{%- endmacro -%}{{ f(0) }}";
    let error = render(endless, "0").unwrap_err();
    assert!(matches!(error, TemplateError::Render { .. }), "{error}");
}

#[test]
fn macros_called_before_and_inside_loops() {
    let source = "{%- macro quote(x, by='\"') -%}{{ by ~ x ~ by }}{%- endmacro -%}
{{ quote(1) }}{% for x in v %}{{ quote(x, by='|') }}{% endfor %}{{ quote(by='_', x=v[0]) }}";
    check(source, "[2,3]", "\"1\"|2||3|_2_");
}

#[test]
fn namespaces_keep_what_loops_set() {
    let source = "{%- set ns = namespace(last=none, n=0) -%}{%- set plain = 0 -%}
{%- for x in v -%}{%- set ns.last = x -%}{%- set ns.n = ns.n + 1 -%}{%- set plain = x -%}{%- endfor -%}
{{ ns.last }} {{ ns.n }} {{ plain }}";
    check(source, "[5,6,7]", "7 3 0");
}

#[test]
fn type_tests() {
    let source = "{%- for x in v -%}
{{ 'm' if x is mapping }}{{ 'i' if x is iterable }}{{ 's' if x is string }}{{ 'n' if x is none }}{{ 'b' if x is boolean }}\
{{ '#' if x is number }}{{ 'd' if x is defined }};
{%- endfor -%}
{{ missing is defined }} {{ missing is none }} {{ v[0].missing is defined }} {{ v is not string }}";
    check(source, r#"[{"a":1},[1],"s",null,true,1,1.5]"#, "mid;id;isd;nd;b#d;#d;#d;False False False True");
}

#[test]
fn items_with_an_inline_condition() {
    let source = "{%- for k, x in v.items() if x is not none -%}
{{ loop.index0 }}{{ 'F' if loop.first }}{{ 'L' if loop.last }}{{ k }}={{ x }};{%- endfor -%}";
    // The position counts what passed the condition.
    check(source, r#"{"z":1,"none":null,"a":"x","b":false,"end":null}"#, "0Fz=1;1a=x;2Lb=False;");
    check(source, "{}", "");
    let pairs = "{%- for k, x in (v|items) if k != 'b' %}{{ k }}{{ x }}{% else %}nothing{% endfor -%}";
    check(pairs, r#"{"a":1,"b":2}"#, "a1");
    check(pairs, r#"{"b":2}"#, "nothing");
}

#[test]
fn slices() {
    let list = "{{ v[1:] }} {{ v[:-1] }} {{ v[::-1] }} {{ v[1:3] }} {{ v[5:] }} {{ v[-2:] }} {{ v[-1] }}";
    check(list, "[1,2,3,4]", "[2, 3, 4] [1, 2, 3] [4, 3, 2, 1] [2, 3] [] [3, 4] 4");
    check("{{ v[:3] }}|{{ v[-2:] }}|{{ v[::-1] }}", "\"häuser\"", "häu|er|resuäh");
    check("{% set turns = v %}{% set turns = turns[1:] %}{{ turns|length }}", "[1,2]", "1");
}

#[test]
fn methods_of_strings() {
    check("{{ v.split('</t>')[0].split('<t>')[-1].strip('\\n') }}", r#""x<t>\nabc\n</t>y""#, "abc");
    check("{{ v.split('</t>')[-1].lstrip('\\n') }}", r#""<t>a</t>\n\nb\n""#, "b\n");
    check("{{ v.strip() }}|{{ v.rstrip() }}|{{ v.split()|length }}", "\"  a b \"", "a b|  a b|2");
    check(
        "{{ v.startswith('<t>') }} {{ v.endswith('x') }} {{ 't>' in v }} {{ v.upper() }}",
        "\"<t>x\"",
        "True True True <T>X",
    );
}

#[test]
fn tojson_leaves_text_as_it_is() {
    let v = r#"{"name":"天気","quote":"\"<&>'\"","none":null,"list":[1,2.0,true]}"#;
    let expected = r#"{"name": "天気", "quote": "\"<&>'\"", "none": null, "list": [1, 2.0, true]}"#;
    check("{{ v | tojson(ensure_ascii=False) }}", v, expected);
    check("{{ '<tool>' ~ (v | tojson(ensure_ascii=False)) ~ '</tool>' }}", v, &format!("<tool>{expected}</tool>"));
    check("{{ v.name | tojson(ensure_ascii=True) }}", v, r#""\u5929\u6c17""#);
}

#[test]
fn loop_positions_and_neighbours() {
    let source = "{%- for x in v -%}
{%- if loop.first or v[loop.index0 - 1] != x %}<{% endif -%}{{ x }}{{ loop.index }}
{%- if loop.last or v[loop.index0 + 1] != x %}>{% endif -%}
{%- endfor -%}";
    check(source, "[7,7,8]", "<7172><83>");
    check("{%- for x in v -%}{{ loop.previtem }}-{{ loop.nextitem }};{%- endfor -%}", "[1,2]", "-2;1-;");
}

#[test]
fn refusals_inside_macros_and_loops() {
    let source = "{%- macro f(x) -%}{% if x > 1 %}{{ raise_exception('no ' ~ x) }}{% endif %}{{ x }}{%- endmacro -%}
{%- for x in v %}{{ f(x) }}{% endfor %}";
    check(source, "[0,1]", "01");
    let error = render(source, "[0,2]").unwrap_err();
    assert!(matches!(&error, TemplateError::Refused(message) if message == "no 2"), "{error:?}");
}

#[test]
fn inline_conditions_and_concatenation() {
    let source = "{%- set mode = v.mode if v.mode is defined else 'adaptive' -%}{{ 'a' ~ mode ~ '\\n' }}{{ v.x if v.x and v.x.y else 'default' }}";
    check(source, "{}", "aadaptive\ndefault");
    check(source, r#"{"mode":"on","x":{"y":1}}"#, "aon\n{'y': 1}");
    check(
        "{{ v.role in ['system', 'developer'] }} {{ v.role not in ['user'] }}",
        r#"{"role":"developer"}"#,
        "True True",
    );
}
