// SPDX-License-Identifier: MIT OR Apache-2.0

//! Expected texts were made with Jinja2 3.1.6 under the settings of transformers (`trim_blocks`, `lstrip_blocks`,
//! its own `tojson` and `generation` tag).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model_minimax::text::{Chat, ChatTemplate, TemplateError};

use crate::scratch::Scratch;

fn fixed() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(source, fixed).unwrap()
}

/// Renders a template that looks at the variable `v` only.
fn with_v(source: &str, v: &str) -> Result<String, TemplateError> {
    template(source).render(&Chat::single(None, "").with_variable("v", v).unwrap())
}

#[test]
fn everything_that_published_templates_use_at_once() {
    let source = r#"{#- {% generation %} in a comment -#}
{%- set ns = namespace(turn=0, seen=[]) -%}
  {% for message in messages %}
    {%- set ns.turn = ns.turn + 1 %}
[{{ ns.turn }}:{{ message.role }}]
    {% if message.role == 'assistant' %}
      {% generation %}
{{ message.content.split('</think>')[-1].strip('\n') }}<end>
      {%- endgeneration %}

    {% else %}
{{ message.content }}
    {% endif %}
  {% endfor %}
{{ tools | tojson(ensure_ascii=False) }}
{{ tools | tojson(ensure_ascii=True, indent=2) }}
{{ nothing }}|{{ nothing.deeper if nothing else '-' }}|{{ "{% generation %}" }}|{% raw %}{% generation %}{% endraw %}|{{ 1e-6 }}|{{ 100000.0 * 1e12 }}|{{ true }}|{{ none }}
"#;
    let messages = r#"[{"role":"user","content":"q <b>"},
        {"role":"assistant","content":"<think>\nhm\n</think>\n\nanswer é\n"}]"#;
    let tools = r#"[{"z":"<a href=\"x\">&'</a>","a":[1,2.5,1e-6,1e16,123456789012345680.0,true,null,{}],
        "emoji":"🦀\u0001\u007f城","b":[]}]"#;
    let expected = concat!(
        "[1:user]\nq <b>\n[2:assistant]\nanswer é<end>\n",
        r#"[{"z": "<a href=\"x\">&'</a>", "a": [1, 2.5, 1e-06, 1e+16, 1.2345678901234568e+17, true, null, {}], "#,
        "\"emoji\": \"🦀\\u0001\u{7f}城\", \"b\": []}]\n",
        "[\n  {\n    \"z\": \"<a href=\\\"x\\\">&'</a>\",\n    \"a\": [\n      1,\n      2.5,\n      1e-06,\n      1e+16,\n",
        "      1.2345678901234568e+17,\n      true,\n      null,\n      {}\n    ],\n",
        r#"    "emoji": "\ud83e\udd80\u0001\u007f\u57ce","#,
        "\n    \"b\": []\n  }\n]\n",
        "|-|{% generation %}|{% generation %}|1e-06|1e+17|True|None",
    );
    let chat = Chat::from_json(messages).unwrap().with_tools(tools).unwrap();
    assert_eq!(template(source).render(&chat).unwrap(), expected);
}

#[test]
fn floats_are_written_as_python_writes_them() {
    let numbers = [
        "0.0",
        "-0.0",
        "1.0",
        "1000000000000000.0",
        "1e+16",
        "123456.789",
        "0.0001",
        "1e-05",
        "0.00012345",
        "5e-324",
        "1.7976931348623157e+308",
        "-2.5e-07",
        "9007199254740992.0",
        "1e+22",
        "1e+100",
        "7",
        "-7",
        "18446744073709551615",
    ];
    for text in numbers {
        assert_eq!(with_v("{{ v | tojson }} {{ v }}", text).unwrap(), format!("{text} {text}"));
    }
}

#[test]
fn tojson_options() {
    let v = r#"{"b":1,"a":[{"k":[]},"x"]}"#;
    assert_eq!(
        with_v("{{ v|tojson(sort_keys=True, indent='\t') }}", v).unwrap(),
        "{\n\t\"a\": [\n\t\t{\n\t\t\t\"k\": []\n\t\t},\n\t\t\"x\"\n\t],\n\t\"b\": 1\n}"
    );
    assert_eq!(with_v("{{ v|tojson(separators=(',',':')) }}", v).unwrap(), r#"{"b":1,"a":[{"k":[]},"x"]}"#);
    assert_eq!(
        with_v("{{ {1: true, none: 2.5, false: 3, 0.5: 4}|tojson }}", "0").unwrap(),
        r#"{"1": true, "null": 2.5, "false": 3, "0.5": 4}"#
    );
    for wrong in ["{{ v|tojson(colour=1) }}", "{{ absent|tojson }}", "{{ v|tojson(indent='\t', separators=1) }}"] {
        assert!(matches!(with_v(wrong, v), Err(TemplateError::Render { line: 1, .. })), "{wrong}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(with_v("{{ v|tojson }}", &deep(100)).unwrap(), deep(100));
    // The parser stops first, at 128 levels; a template can nest further by itself.
    assert!(Chat::from_json(&deep(1000)).is_err());
    let nest =
        "{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}";
    let error = with_v(nest, "0").unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[test]
fn python_methods_and_loop_controls() {
    let source = "{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}\n\
                  {{ v.a.b is undefined }} {{ v.get('k', 'no') }} {{ v.keys()|list }} {{ 'a-b'.replace('-', '+') }} \
                  {{ 'x,y'.split(',') }}\n";
    assert_eq!(with_v(source, r#"{"q":1,"a":{}}"#).unwrap(), "13True no ['q', 'a'] a+b ['x', 'y']");
}

#[test]
fn time_comes_from_the_injected_clock() {
    assert_eq!(with_v("{{ strftime_now('%d %b %Y') }}", "0").unwrap(), "01 Jan 2026");
    let error = with_v("{{ strftime_now('%Q') }}", "0").unwrap_err();
    assert!(error.to_string().contains("%Q"), "{error}");
}

#[test]
fn errors_name_the_line() {
    let syntax = ChatTemplate::from_source("a\n{% if %}\n", fixed).unwrap_err();
    assert!(matches!(syntax, TemplateError::Syntax { line: 2, .. }), "{syntax:?}");
    let render = with_v("a\nb\n{{ v.f() }}", "{}").unwrap_err();
    assert!(matches!(render, TemplateError::Render { line: 3, .. }), "{render:?}");
    let refused = with_v("{{ raise_exception('no ' ~ v) }}", "7").unwrap_err();
    assert!(matches!(&refused, TemplateError::Refused(message) if message == "no 7"), "{refused:?}");
    let json = Chat::from_json("[{]").unwrap_err();
    assert!(matches!(json, TemplateError::Json { what: "messages", .. }), "{json:?}");
}

#[test]
fn unclosed_tags_are_syntax_errors() {
    for source in ["{% generation", "{{ 'x }}", "{# never closed", "{% raw %} x", "{"] {
        let parsed = ChatTemplate::from_source(source, fixed);
        assert_eq!(parsed.is_ok(), source == "{", "{source}");
    }
}

#[test]
fn a_file_wins_over_the_configuration_and_is_read_verbatim() {
    let dir = Scratch::new();
    let render = || ChatTemplate::from_dir(dir.path(), fixed)?.render(&Chat::single(Some("s"), "u"));
    assert!(matches!(render(), Err(TemplateError::Missing { .. })));

    let list = r#"{"bos_token": {"content": "<B>"}, "eos_token": "<E>",
        "chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "d"}]}"#;
    dir.write("tokenizer_config.json", list);
    assert_eq!(render().unwrap(), "d");

    dir.write("tokenizer_config.json", r#"{"chat_template": "c {{ messages|length }}"}"#);
    assert_eq!(render().unwrap(), "c 2");

    dir.write(
        "tokenizer_config.json",
        r#"{"bos_token": {"content": "<B>"}, "eos_token": "<E>", "chat_template": "c"}"#,
    );
    dir.write("chat_template.jinja", "  {{ bos_token }}\n\n{{ messages[1].content }}{{ eos_token }}\n\n");
    assert_eq!(render().unwrap(), "  <B>\n\nu<E>\n");

    dir.write("tokenizer_config.json", "[");
    assert!(matches!(render(), Err(TemplateError::Config { .. })));
}
