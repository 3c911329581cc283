#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compare hand-written FFI declarations with genuine AscendCL headers.

`cargo xtask bindgen --check` runs it on the declarations of `ascend-rt`. The headers are read where they lie; nothing
of them is written anywhere.

Usage
    ACL_INCLUDE=/usr/local/Ascend/ascend-toolkit/latest/include \
        acl_ffi_check.py src/sys.rs [more.rs list.txt ...]
    acl_ffi_check.py --include DIR --list 'aclrtMall'      what the headers say
    acl_ffi_check.py --matrix 8.1=DIR1 9.1=DIR2 sys.rs     which version has what
    acl_ffi_check.py --self-test

What it reads on our side
    Rust   fn items inside extern blocks or macros  fn aclInit(p: *const c_char) -> aclError;
           struct fields / statics                  aclInit: unsafe extern "C" fn(..) -> i32
                                                    aclInit: Option<unsafe extern "C" fn(..)>
           type aliases                             type aclInit_t = unsafe extern "C" fn(..);
                                                    (affixes Fn, Pfn, fn_, _t, _fn, Fn are dropped)
           constants                                const ACL_X: aclError = 107002;
           #[repr(i32)] enums                       enum E { ACL_X = 1, .. }   or  #[doc(alias="ACL_X")] X = 1
           #[repr(C)] structs and unions            size, alignment and field offsets
           `// acl: cName` on or above a line       names the C symbol when ours differs
           `// acl: optional` / `// acl: skip`      absent in old headers is fine / not compared
    text   name(args) -> ret        args in C types, in Rust types, or just a number
           NAME = value             enum member, #define or static const
           struct NAME size=16 align=8 attrs@0 numAttrs@8

What it compares
    name present; argument count; class of each argument and of the result
    (pointer, float, integer width; --strict adds signedness and pointer depth);
    constant values; struct layout (LP64). --cc CC also compiles a probe with the
    genuine headers, so that layout comes from a real compiler, not from this parser.

Exit 0 nothing differs, 1 something differs, 2 could not run.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

# ---------------------------------------------------------------- type classes
PRIM_C = {
    "void": ("void", 0), "char": ("i", 1), "signed char": ("i", 1), "unsigned char": ("u", 1),
    "bool": ("u", 1), "_Bool": ("u", 1), "int8_t": ("i", 1), "uint8_t": ("u", 1),
    "short": ("i", 2), "unsigned short": ("u", 2), "int16_t": ("i", 2), "uint16_t": ("u", 2),
    "int": ("i", 4), "unsigned": ("u", 4), "unsigned int": ("u", 4), "int32_t": ("i", 4),
    "uint32_t": ("u", 4), "long": ("i", 8), "unsigned long": ("u", 8), "long long": ("i", 8),
    "unsigned long long": ("u", 8), "int64_t": ("i", 8), "uint64_t": ("u", 8), "size_t": ("u", 8),
    "ssize_t": ("i", 8), "uintptr_t": ("u", 8), "intptr_t": ("i", 8), "float": ("f", 4),
    "double": ("f", 8),
}
PRIM_RS = {
    "()": ("void", 0), "c_void": ("void", 0), "i8": ("i", 1), "u8": ("u", 1), "bool": ("u", 1),
    "c_char": ("i", 1), "c_schar": ("i", 1), "c_uchar": ("u", 1), "i16": ("i", 2), "u16": ("u", 2),
    "c_short": ("i", 2), "c_ushort": ("u", 2), "i32": ("i", 4), "u32": ("u", 4), "c_int": ("i", 4),
    "c_uint": ("u", 4), "i64": ("i", 8), "u64": ("u", 8), "c_long": ("i", 8), "c_ulong": ("u", 8),
    "c_longlong": ("i", 8), "c_ulonglong": ("u", 8), "isize": ("i", 8), "usize": ("u", 8),
    "f32": ("f", 4), "f64": ("f", 8), "size_t": ("u", 8), "int32_t": ("i", 4), "uint32_t": ("u", 4),
    "int64_t": ("i", 8), "uint64_t": ("u", 8),
}


class Ty:
    """kind: void, i, u, f, ptr, agg, unknown; size in bytes; depth = pointer depth."""

    def __init__(self, kind, size=0, depth=0, name="", align=None, n=1):
        self.kind, self.size, self.depth, self.name, self.n = kind, size, depth, name, n
        self.align = align if align else (size if size else 1)

    def __str__(self):
        if self.kind == "ptr":
            return "ptr" + ("" if self.depth < 2 else str(self.depth))
        if self.kind in ("agg", "unknown"):
            return f"{self.kind}:{self.name}"
        return "void" if self.kind == "void" else f"{self.kind}{8 * self.size}"


def same(a, b, strict):
    if a.kind in ("unknown",) or b.kind in ("unknown",):
        return not strict
    if a.kind == "agg" or b.kind == "agg":
        return a.kind == b.kind and a.size == b.size
    if a.kind == "ptr" or b.kind == "ptr":
        return a.kind == b.kind and (not strict or a.depth == b.depth)
    if a.kind in "iu" and b.kind in "iu":
        return a.size == b.size and (not strict or a.kind == b.kind)
    return a.kind == b.kind and a.size == b.size


# ------------------------------------------------------------------ text tools
def strip_comments(text):
    out, i, n = [], 0, len(text)
    while i < n:
        two = text[i:i + 2]
        if two == "//":
            j = text.find("\n", i)
            i = n if j < 0 else j
        elif two == "/*":
            j = text.find("*/", i + 2)
            chunk = text[i:n if j < 0 else j + 2]
            out.append("\n" * chunk.count("\n") or " ")
            i = n if j < 0 else j + 2
        elif text[i] == '"':
            j = i + 1
            while j < n and text[j] != '"':
                j += 2 if text[j] == "\\" else 1
            out.append(text[i:j + 1])
            i = j + 1
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def drop_cpp(text):
    """Keep what a C compiler on Linux sees: C++-only, MSVC-only and `#if 0` parts go.
    Conditions that are none of these keep both branches (the first declaration wins)."""
    out, stack = [], []             # stack holds: off (this branch is dropped), known
    for line in text.split("\n"):
        m = re.match(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)", line)
        if not m:
            out.append("" if any(off for off, _ in stack) else line)
            continue
        word, cond = m.group(1), m.group(2)
        if word in ("if", "ifdef", "ifndef"):
            neg = word == "ifndef" or re.match(r"\s*!\s*defined", cond)
            known = bool(re.search(r"__cplusplus|_MSC_VER|__BISHENG_CCEC__|^\s*0\s*$", cond)) and "||" not in cond
            stack.append((known and not neg, known))
        elif word in ("else", "elif") and stack:
            off, known = stack[-1]
            stack[-1] = (known and not off, known)
        elif word == "endif" and stack:
            stack.pop()
        out.append("")
    return "\n".join(out)


def split_top(s, sep=","):
    parts, depth, cur = [], 0, ""
    for k, ch in enumerate(s):
        if ch in "([{<":
            depth += 1
        elif ch in ")]}" or (ch == ">" and s[k - 1:k] != "-"):
            depth -= 1
        if ch == sep and depth == 0:
            parts.append(cur)
            cur = ""
        else:
            cur += ch
    if cur.strip():
        parts.append(cur)
    return [p.strip() for p in parts]


def match_close(s, i, o="(", c=")"):
    depth = 0
    for j in range(i, len(s)):
        if s[j] == o:
            depth += 1
        elif s[j] == c:
            depth -= 1
            if depth == 0:
                return j
    return -1


def const_eval(expr, known):
    e = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", expr)
    e = re.sub(r"\b(0[xX][0-9a-fA-F_]+|\d[\d_]*)_?(?:[iu](?:8|16|32|64|size))\b", r"\1", e)
    e = re.sub(r"\bas\s+\w+", "", e)
    e = re.sub(r"\(\s*(?:u?int\d*(?:_t)?|unsigned|size_t)\s*\)", "", e).strip()
    for w in set(re.findall(r"[A-Za-z_]\w*", re.sub(r"0[xX][0-9a-fA-F]+", "", e))):
        if w not in known:
            return None
        e = re.sub(rf"\b{w}\b", f"({known[w]})", e)
    if not e or not re.fullmatch(r"[0-9a-fA-FxX_()\s|&^~<>+*-]+", e):
        return None
    try:
        return int(eval(e, {"__builtins__": {}}))  # digits and operators only, checked above
    except Exception:
        return None


# ------------------------------------------------------------------- C headers
class Headers:
    def __init__(self, root):
        self.root = root
        self.funcs, self.consts, self.types, self.aggs, self.where = {}, {}, {}, {}, {}
        self.deprecated = set()
        files = []
        for base, _, names in os.walk(root):
            for nm in names:
                rel = os.path.relpath(os.path.join(base, nm), root)
                if nm.endswith(".h") and re.search(r"(^|/)(acl|ge|error_codes|mstx)[^/]*", rel) \
                        and not re.search(r"(^|/)(dvpp|media|aclnnop|ops|amct)/", rel):
                    files.append(os.path.join(base, nm))
        if not files:
            raise SystemExit2(f"no acl*.h under {root}")
        self.files = sorted(files)
        texts = []
        for f in self.files:
            with open(f, encoding="utf-8", errors="replace") as fh:
                texts.append((f, self._clean(fh.read())))
        for f, t in texts:          # two passes: constants and types can be used before the file that has them
            self._defines(f, t)
        for f, t in texts:
            self._enums_types(f, re.sub(r"^[ \t]*#.*$", "", t, flags=re.M))
        for f, t in texts:
            self._functions(f, re.sub(r"^[ \t]*#.*$", "", t, flags=re.M))

    @staticmethod
    def _clean(t):
        t = strip_comments(t).replace("\\\n", " ")
        t = drop_cpp(t)
        t = re.sub(r'ACL_DEPRECATED_MESSAGE\s*\((?:[^()"]|"[^"]*")*\)', " __DEPR__ ", t)
        t = re.sub(r"\bACL_DEPRECATED\b", " __DEPR__ ", t)
        t = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", t)
        return re.sub(r"\b(ACL_FUNC_VISIBILITY|MSVP_PROF_API|ACL_DUMP_API|ACL_DUMP_WEAK|GE_FUNC_VISIBILITY|MSTX_\w*(?:FUNC|DECL)\w*)\b", " ", t)

    def _defines(self, f, t):
        for m in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+(.+?)[ \t]*$", t, re.M):
            v = const_eval(m.group(2), self.consts)
            if v is not None:
                self.consts.setdefault(m.group(1), v)
                self.where.setdefault(m.group(1), f)
        for m in re.finditer(r"static\s+const\s+\w+\s+([A-Z]\w*)\s*=\s*([^;]+);", t):
            v = const_eval(m.group(2), self.consts)
            if v is not None:
                self.consts.setdefault(m.group(1), v)
                self.where.setdefault(m.group(1), f)

    def _enums_types(self, f, t):
        for m in re.finditer(r"\benum\b\s*(\w+)?\s*\{", t):
            end = match_close(t, m.end() - 1, "{", "}")
            tail = re.match(r"\s*(\w+)?\s*;", t[end + 1:])
            nxt, low = 0, 0
            for item in split_top(t[m.end():end]):
                item = item.replace("__DEPR__", " ").strip()
                if not item:
                    continue
                k, _, expr = item.partition("=")
                k = k.strip()
                if expr:
                    v = const_eval(expr, self.consts)
                    if v is None:
                        break
                    nxt = v
                self.consts.setdefault(k, nxt)
                self.where.setdefault(k, f)
                low = min(low, nxt)
                nxt += 1
            # On the hosts of the library a compiler gives an enumeration an unsigned type unless a member is negative.
            for nm in filter(None, (m.group(1), tail.group(1) if tail else None)):
                self.types.setdefault(nm, Ty("i" if low < 0 else "u", 4, name=nm))
        for m in re.finditer(r"\btypedef\s+([^;{}()]+?)\s*(\**)\s*(\w+)\s*;", t):
            base, stars, nm = m.group(1).strip(), m.group(2), m.group(3)
            depth = base.count("*") + len(stars)
            base = re.sub(r"\b(const|volatile|struct|enum|union)\b|\*", " ", base).split()
            base = " ".join(base)
            if depth:
                self.types.setdefault(nm, Ty("ptr", 8, depth, nm))
            elif re.match(r"\s*(struct|union)\b", m.group(1)):
                self.types.setdefault(nm, Ty("agg", 0, name=base))
            else:
                self.types.setdefault(nm, ("alias", base))
        for m in re.finditer(r"\btypedef\s+[\w\s*]+\(\s*\*\s*(\w+)\s*\)\s*\(", t):
            self.types.setdefault(m.group(1), Ty("ptr", 8, 1, m.group(1)))
        for m in re.finditer(r"\b(struct|union)\b\s*(\w+)?\s*\{", t):
            if t[:m.start()].count("{") - t[:m.start()].count("}") > 1:
                continue            # nested: laid out with its parent
            end = match_close(t, m.end() - 1, "{", "}")
            tail = re.match(r"\s*(\w+)?\s*;", t[end + 1:])
            names = [x for x in (m.group(2), tail.group(1) if tail else None) if x]
            for nm in names:
                self.aggs.setdefault(nm, (m.group(1), t[m.end():end]))
                self.types[nm] = Ty("agg", 0, name=nm)
                self.where.setdefault(nm, f)

    def resolve(self, base):
        if base in PRIM_C:
            k, s = PRIM_C[base]
            return Ty(k, s, name=base)
        t = self.types.get(base)
        if isinstance(t, tuple):
            return self.resolve(t[1])
        if t is None:
            return Ty("unknown", 0, name=base)
        if t.kind == "agg":
            lay = self.layout(t.name) or self.layout(base)
            return Ty("agg", lay["size"], name=base, align=lay["align"]) if lay else Ty("agg", 0, name=base)
        return t

    def ctype(self, s):
        """A C parameter or field declaration without a default value."""
        s = s.replace("__DEPR__", " ").strip()
        if "(*" in s.replace(" ", ""):
            return Ty("ptr", 8, 1)
        arr = re.search(r"\[([^\]]*)\]\s*$", s)
        n = 1
        if arr:
            n = const_eval(arr.group(1), self.consts) or 0
            s = s[:arr.start()]
        depth = s.count("*")
        toks = [w for w in re.sub(r"\*", " * ", s).split()
                if w not in ("const", "volatile", "struct", "enum", "union", "restrict", "*", "inline", "static")]
        base, rest = "", list(toks)
        for take in (3, 2, 1):      # longest primitive spelling first
            if len(rest) >= take and " ".join(rest[:take]) in PRIM_C:
                base, rest = " ".join(rest[:take]), rest[take:]
                break
        if not base and rest:
            base, rest = rest[0], rest[1:]
        r = self.resolve(base)
        if depth:
            r = Ty("ptr", 8, depth + (r.depth if r.kind == "ptr" else 0), base)
        else:
            r = Ty(r.kind, r.size, r.depth, r.name, r.align)
        r.n = n
        r.var = rest[-1] if rest else ""
        r.is_array = bool(arr)
        return r

    def _functions(self, f, t):
        t = re.sub(r'extern\s*"C"\s*(\w+)?\s*\{', " ", t)
        flat, depth = [], 0         # drop brace bodies (inline functions, structs)
        for ch in t:
            if ch == "{":
                depth += 1
            elif ch == "}":
                depth = max(0, depth - 1)
                flat.append(";" if depth == 0 else "")
            elif depth == 0:
                flat.append(ch)
        for stmt in "".join(flat).split(";"):
            if "typedef" in stmt or "=" in stmt or "template" in stmt or "static inline" in stmt:
                continue
            depr = "__DEPR__" in stmt
            m = re.match(r"^\s*((?:extern\s+)?(?:const\s+)?[A-Za-z_][\w\s]*?[\s*]+)([A-Za-z_]\w*)\s*\(",
                         stmt.replace("__DEPR__", " "))
            if not m:
                continue
            s = stmt.replace("__DEPR__", " ")
            close = match_close(s, m.end() - 1)
            if close < 0:
                continue
            args = split_top(s[m.end():close])
            if args in ([], ["void"]):
                args = []
            name = m.group(2)
            ret = re.sub(r"\bextern\b", "", m.group(1))
            self.funcs.setdefault(name, (self.ctype(ret), [self.ctype(a) if a != "..." else Ty("unknown", name="...")
                                                          for a in args],
                                         re.sub(r"\s+", " ", s.strip())))
            self.where.setdefault(name, f)
            if depr:
                self.deprecated.add(name)

    def layout(self, name, body=None, kind=None):
        if body is None:
            if name not in self.aggs:
                return None
            kind, body = self.aggs[name]
        fields, off, size, align = [], 0, 0, 1
        i, decls = 0, []
        while i < len(body):
            m = re.match(r"\s*(struct|union)\s*\w*\s*\{", body[i:])
            if m:
                st = i + m.end() - 1
                en = match_close(body, st, "{", "}")
                tail = re.match(r"\s*(\w*)\s*;", body[en + 1:])
                decls.append((m.group(1), body[st + 1:en], tail.group(1)))
                i = en + 1 + tail.end()
                continue
            j = body.find(";", i)
            if j < 0:
                break
            d = body[i:j].strip()
            i = j + 1
            if d and "(" not in d.replace("(*", ""):
                decls.append(d)
            elif d and "(*" in d.replace(" ", ""):
                decls.append(d)
        for d in decls:
            if isinstance(d, tuple):
                sub = self.layout(None, d[1], d[0])
                if sub is None:
                    return None
                sz, al, nm, inner = sub["size"], sub["align"], d[2], sub["fields"]
            else:
                ty = self.ctype(d)
                if ty.kind == "unknown" or (ty.kind == "agg" and ty.size == 0):
                    return None
                al = ty.align if ty.kind == "agg" else (8 if ty.kind == "ptr" else ty.size)
                sz, nm, inner = ty.size * ty.n, getattr(ty, "var", ""), None
            align = max(align, al)
            o = 0 if kind == "union" else (off + al - 1) // al * al
            if nm:
                fields.append((nm, o))
            else:
                fields += [(n, o + x) for n, x in inner or []]
            off = o + sz
            size = max(size, off)
        return {"size": (size + align - 1) // align * align, "align": align, "fields": fields}


class SystemExit2(Exception):
    pass


# ---------------------------------------------------------------- our own side
class Ours:
    def __init__(self):
        self.funcs, self.consts, self.structs = [], [], []   # (name, data, file, line, flags)


class RustFile:
    AFFIX = re.compile(r"^(?:Pfn|PFN_|Fn_?|fn_|FN_)?(.*?)(?:_t|_fn|_f|Fn)?$")

    def __init__(self, path, ours):
        self.path = path
        with open(path, encoding="utf-8") as fh:
            self.raw = fh.read()
        self.marks = self._marks()
        self.t = strip_comments(self.raw)
        self.alias, self.aggs, self.consts = {}, {}, {}
        self._types()
        self._consts(ours)
        self._enums(ours)
        self._structs(ours)
        self._fns(ours)

    def _marks(self):
        marks, lines = {}, self.raw.split("\n")
        for i, line in enumerate(lines, 1):
            m = re.search(r"//[/!]?\s*acl:\s*(.+?)\s*$", line)
            if m:
                at = i if line.strip().split("//")[0] else i + 1
                while at != i and at <= len(lines) and re.match(r"\s*(#\[|///)", lines[at - 1]):
                    at += 1         # attributes and documentation may stand between
                marks.setdefault(at, []).extend(m.group(1).replace(",", " ").split())
        return marks

    def line(self, pos):
        return self.t.count("\n", 0, pos) + 1

    def meta(self, pos, name):
        flags = set(self.marks.get(self.line(pos), []))
        named = [x for x in flags if re.match(r"(acl|ge|rt|mstx|ACL|GE)\w{2,}$", x)]
        return (named[0] if named else name), flags

    def _types(self):
        for m in re.finditer(r"\btype\s+(\w+)\s*=\s*([^;]+);", self.t):
            self.alias[m.group(1)] = m.group(2).strip()
        for m in re.finditer(r"#\[repr\(([^)]*)\)\]((?:\s*#\[[^\]]*\])*)\s*(?:pub(?:\([^)]*\))?\s+)?(struct|union|enum)\s+(\w+)"
                             r"\s*(\{|\()", self.t):
            o = m.group(5)
            end = match_close(self.t, m.end() - 1, o, "}" if o == "{" else ")")
            self.aggs[m.group(4)] = (m.group(1), m.group(3), o, self.t[m.end():end], m.start(4))

    def rtype(self, s, seen=()):
        s = re.sub(r"\b(?:(?:std|core|libc|ffi|os|raw|crate|super|self|sys)::)+", "", s.strip())
        s = re.sub(r"^(\w+)\s*:\s*(?!:)", "", s).strip()
        if not s or s == "()" or s == "!":
            return Ty("void")
        m = re.match(r"\*\s*(?:const|mut)\s+(.*)$", s, re.S)
        if m:
            inner = self.rtype(m.group(1), seen)
            return Ty("ptr", 8, 1 + (inner.depth if inner.kind == "ptr" else 0))
        if re.match(r"(Option\s*<\s*)?(unsafe\s+)?extern\b", s) or re.match(r"Option\s*<\s*(NonNull|&|Box)", s) or \
                s.startswith("&") or re.match(r"NonNull\s*<", s):
            return Ty("ptr", 8, 1)
        m = re.match(r"\[(.*);([^;]*)\]$", s, re.S)
        if m:
            inner = self.rtype(m.group(1), seen)
            return Ty(inner.kind, inner.size, inner.depth, inner.name, inner.align,
                      n=inner.n * (const_eval(m.group(2), self.consts) or 0))
        base = s.split("::")[-1]
        if base in PRIM_RS:
            k, z = PRIM_RS[base]
            return Ty(k, z, name=base)
        if base in seen:
            return Ty("unknown", name=base)
        if base in self.alias:
            return self.rtype(self.alias[base], seen + (base,))
        if base in self.aggs:
            rep, kind, o, body, _ = self.aggs[base]
            if kind == "enum":
                r = re.search(r"\b[iu]\d+\b", rep)
                return self.rtype(r.group(0)) if r else Ty("i", 4, name=base)
            if "transparent" in rep:
                first = split_top(body)[0]
                return self.rtype(re.sub(r"^(pub(\([^)]*\))?\s+)", "", first), seen + (base,))
            lay = self.layout(base)
            return Ty("agg", lay["size"], name=base, align=lay["align"]) if lay else Ty("agg", 0, name=base)
        return Ty("unknown", name=base)

    def layout(self, name):
        rep, kind, o, body, _ = self.aggs[name]
        off, size, align, fields = 0, 0, 1, []
        for f in split_top(re.sub(r"#\[[^\]]*\]", "", body)):
            f = re.sub(r"^(pub(\([^)]*\))?\s+)", "", f)
            nm = f.split(":")[0].strip() if o == "{" else ""
            ty = self.rtype(f.split(":", 1)[1] if o == "{" else f)
            if ty.kind == "unknown" or (ty.kind == "agg" and not ty.size and f):
                return None
            if ty.kind == "void":
                continue
            al = 8 if ty.kind == "ptr" else ty.align
            m = re.search(r"ManuallyDrop|MaybeUninit", f)
            if m:
                return None
            align = max(align, al)
            at = 0 if kind == "union" else (off + al - 1) // al * al
            fields.append((nm, at))
            off = at + ty.size * ty.n
            size = max(size, off)
        return {"size": (size + align - 1) // align * align, "align": align, "fields": fields}

    def _consts(self, ours):
        for m in re.finditer(r"\bconst\s+([A-Z]\w*)\s*:\s*[\w:]+\s*=\s*([^;]+);", self.t):
            v = const_eval(m.group(2), self.consts)
            if v is None:
                w = re.search(r"\(\s*([-\w]+)\s*\)$", m.group(2).strip())   # newtype: AclError(107002)
                v = const_eval(w.group(1), self.consts) if w else None
            if v is None:
                continue
            self.consts[m.group(1)] = v
            name, fl = self.meta(m.start(1), m.group(1))
            if re.match(r"(ACL|GE|RT|MSTX)_", name):
                ours.consts.append((name, v, self.path, self.line(m.start(1)), fl))

    def _enums(self, ours):
        for ename, (rep, kind, o, body, pos) in self.aggs.items():
            if kind != "enum":
                continue
            start, nxt = self.t.index("{", pos) + 1, 0
            at = start
            for item in split_top(body):
                at = self.t.index(item, at)
                al = re.search(r'alias\s*=\s*"(\w+)"', item)
                core = re.sub(r"#\[[^\]]*\]", "", item).strip()
                k, _, e = core.partition("=")
                if e:
                    v = const_eval(e, self.consts)
                    if v is None:
                        break
                    nxt = v
                name, fl = self.meta(at + item.rfind(core), al.group(1) if al else k.strip())
                if re.match(r"(ACL|GE|RT|MSTX)_", name):
                    ours.consts.append((name, nxt, self.path, self.line(at), fl))
                nxt += 1

    def _structs(self, ours):
        for nm, (rep, kind, o, body, pos) in self.aggs.items():
            if kind == "enum" or "transparent" in rep or not body.strip():
                continue
            name, fl = self.meta(pos, nm)
            lay = self.layout(nm)
            if lay and lay["size"] and not re.fullmatch(r"\s*_\w+\s*:\s*\[u8;\s*0\],?\s*", body):
                ours.structs.append((name, lay, self.path, self.line(pos), fl))

    def _fns(self, ours):
        seen = set()

        def add(name, pos, arglist, ret):
            cname, fl = self.meta(pos, name)
            if not re.match(r"(acl|ge|rt|mstx)[A-Z]", cname) and cname == name:
                low = name[:1].lower() + name[1:]
                if not re.match(r"(acl|mstx)", low):
                    return
                cname = low
            args = [self.rtype(a) for a in split_top(arglist) if a and a.strip() != "..."]
            key = (cname, self.line(pos))
            if key not in seen:
                seen.add(key)
                ours.funcs.append((cname, (self.rtype(ret or "()"), args, len(args)), self.path, self.line(pos), fl))

        for m in re.finditer(r"\bfn\s+(\w+)\s*\(", self.t):
            end = match_close(self.t, m.end() - 1)
            tail = re.match(r"\s*(?:->\s*([^;{]+?))?\s*;", self.t[end + 1:])
            if tail:
                add(m.group(1), m.start(1), self.t[m.end():end], tail.group(1))
        sig = r"(?:Option\s*<\s*)?(?:for\s*<[^>]*>\s*)?(?:unsafe\s+)?extern\s*\"C\"\s*fn\s*\("
        for m in re.finditer(r"(?:\btype\s+(\w+)\s*=\s*|\b(\w+)\s*:\s*)" + sig, self.t):
            end = match_close(self.t, m.end() - 1)
            tail = re.match(r"\s*(?:->\s*([^,;>}]+))?", self.t[end + 1:])
            nm = m.group(1) or m.group(2)
            pos = m.start(1) if m.group(1) else m.start(2)
            if m.group(1):
                nm = self.AFFIX.match(nm).group(1) or nm
            if pos and self.t[:pos].rstrip().endswith("(") or self._inside_fn_args(pos):
                continue
            add(nm, pos, self.t[m.end():end], (tail.group(1) or "").strip())

    def _inside_fn_args(self, pos):
        """A callback parameter of another declaration is not a declaration itself."""
        depth, i = 0, pos - 1
        while i >= 0 and self.t[i] not in ";":
            if self.t[i] == ")":
                depth += 1
            elif self.t[i] == "(":
                if depth == 0:
                    return True
                depth -= 1
            elif self.t[i] in "{}" and depth == 0:
                return False
            i -= 1
        return False


def read_list(path, hdr, ours):
    rf = RustFile.__new__(RustFile)
    rf.alias, rf.aggs, rf.consts = {}, {}, {}

    def any_type(s):
        s = s.strip()
        if re.match(r"\*\s*(const|mut)\b", s) or re.sub(r"^\w+\s*:\s*", "", s) in PRIM_RS:
            return rf.rtype(s)
        return hdr.ctype(s)

    with open(path, encoding="utf-8") as fh:
        for no, line in enumerate(fh, 1):
            fl = set(re.findall(r"acl:\s*(\w+)", line))
            line = re.sub(r"(#|//).*$", "", line).strip().rstrip(";")
            if not line:
                continue
            m = re.match(r"struct\s+(\w+)\s+(.*)$", line)
            if m:
                lay = {"fields": [], "size": None, "align": None}
                for w in m.group(2).split():
                    if "@" in w:
                        n, o = w.split("@")
                        lay["fields"].append((n, int(o, 0)))
                    else:
                        k, v = w.split("=")
                        lay[k] = int(v, 0)
                ours.structs.append((m.group(1), lay, path, no, fl))
                continue
            m = re.match(r"(?:fn\s+)?(\w+)\s*\((.*)\)\s*(?:->\s*(.+))?$", line)
            if m:
                body = m.group(2).strip()
                if re.fullmatch(r"\d+", body):
                    data = (None, None, int(body))
                else:
                    args = [any_type(a) for a in split_top(body) if a != "void"]
                    data = (any_type(m.group(3)) if m.group(3) else None, args, len(args))
                ours.funcs.append((m.group(1), data, path, no, fl))
                continue
            m = re.match(r"(\w+)\s*=\s*(.+)$", line)
            v = const_eval(m.group(2), {}) if m else None
            if v is None:
                raise SystemExit2(f"{path}:{no}: cannot read: {line}")
            ours.consts.append((m.group(1), v, path, no, fl))


# ------------------------------------------------------------------ comparison
def compare(hdr, ours, strict, cc):
    bad, ok, absent = [], 0, []

    def miss(kind, name, f, ln, fl):
        (absent if "optional" in fl else bad).append((f, ln, f"{kind} {name}: not in the headers"))

    for name, (ret, args, n), f, ln, fl in ours.funcs:
        if "skip" in fl:
            continue
        if name not in hdr.funcs:
            miss("function", name, f, ln, fl)
            continue
        cret, cargs, proto = hdr.funcs[name]
        errs = []
        if n != len(cargs):
            errs.append(f"{n} arguments, header has {len(cargs)}")
        elif args is not None:
            errs += [f"argument {i + 1} is {a}, header has {c}" for i, (a, c) in enumerate(zip(args, cargs))
                     if not same(a, c, strict)]
        if ret is not None and not same(ret, cret, strict):
            errs.append(f"returns {ret}, header has {cret}")
        if errs:
            bad.append((f, ln, f"function {name}: {'; '.join(errs)}\n    header: {proto}"))
        else:
            ok += 1
    for name, v, f, ln, fl in ours.consts:
        if "skip" in fl:
            continue
        if name not in hdr.consts:
            miss("constant", name, f, ln, fl)
        elif (hdr.consts[name] & 0xFFFFFFFFFFFFFFFF) != (v & 0xFFFFFFFFFFFFFFFF) and \
                (hdr.consts[name] & 0xFFFFFFFF) != v:
            bad.append((f, ln, f"constant {name} = {v}, header has {hdr.consts[name]}"))
        else:
            ok += 1
    want = [s for s in ours.structs if "skip" not in s[4]]
    probed = probe(hdr, [s[0] for s in want if s[0] in hdr.aggs], cc) if cc and want else {}
    for name, lay, f, ln, fl in want:
        c = probed.get(name) or hdr.layout(name)
        if c is None:
            if name in hdr.aggs:
                bad.append((f, ln, f"struct {name}: layout not computable, use --cc"))
            else:
                miss("struct", name, f, ln, fl)
            continue
        errs = [f"{k} {lay[k]}, header has {c[k]}" for k in ("size", "align") if lay[k] is not None and lay[k] != c[k]]
        cf = dict(c["fields"])
        named = [(n, o) for n, o in lay["fields"] if n in cf]
        errs += [f"{n} at {o}, header has {cf[n]}" for n, o in named if cf[n] != o]
        if not named and lay["fields"] and [o for _, o in lay["fields"]] != [o for _, o in c["fields"]]:
            errs.append(f"offsets {[o for _, o in lay['fields']]}, header has {[o for _, o in c['fields']]}")
        if errs:
            bad.append((f, ln, f"struct {name}: {'; '.join(errs)}"))
        else:
            ok += 1
    return ok, bad, absent


def probe(hdr, names, cc):
    """sizeof, _Alignof and offsetof as the compiler sees the genuine headers."""
    if not names:
        return {}
    incs = sorted({os.path.dirname(os.path.dirname(f)) for f in hdr.files} |
                  {os.path.dirname(f) for f in hdr.files} | {hdr.root})
    heads = sorted({os.path.relpath(hdr.where[n], hdr.root) for n in names})
    src = "#include <stdio.h>\n#include <stddef.h>\n" + "".join(f'#include "{h}"\n' for h in heads)
    src += "int main(void){\n"
    for n in names:
        t = n if not isinstance(hdr.types.get(n), tuple) else n
        src += f'printf("{n} %zu %zu", sizeof({t}), _Alignof({t}));\n'
        for fld, _ in (hdr.layout(n) or {"fields": []})["fields"]:
            src += f'printf(" {fld}@%zu", offsetof({t}, {fld}));\n'
        src += 'printf("\\n");\n'
    src += "return 0;}\n"
    with tempfile.TemporaryDirectory() as d:
        c, exe = os.path.join(d, "p.c"), os.path.join(d, "p")
        with open(c, "w") as fh:
            fh.write(src)
        r = subprocess.run([cc, "-w", *[f"-I{i}" for i in incs], c, "-o", exe], capture_output=True, text=True)
        if r.returncode:
            raise SystemExit2("the probe did not compile:\n" + r.stderr[:2000])
        out = subprocess.run([exe], capture_output=True, text=True).stdout
    res = {}
    for line in out.splitlines():
        w = line.split()
        res[w[0]] = {"size": int(w[1]), "align": int(w[2]),
                     "fields": [(a.split("@")[0], int(a.split("@")[1])) for a in w[3:]]}
    return res


SELF_H = """
typedef void* aclrtStream; typedef int aclError;
static const int ACL_SUCCESS = 0;
#define ACL_STREAM_FAST_LAUNCH 0x00000001U
typedef enum aclrtPol { ACL_A, ACL_B, ACL_HI = 0x1000, ACL_NEXT } aclrtPol;
typedef union aclrtV { unsigned char m; unsigned int rsv[4]; } aclrtV;
typedef struct aclrtAttr { aclrtPol id; aclrtV value; } aclrtAttr;
typedef struct { aclrtAttr *attrs; size_t numAttrs; } aclrtCfg;
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void **devPtr, size_t size, aclrtPol policy);
ACL_DEPRECATED_MESSAGE("old (see x)") ACL_FUNC_VISIBILITY aclError aclrtOld(aclrtStream s);
ACL_FUNC_VISIBILITY const char *aclGetMsg();
"""
SELF_RS = """
pub type aclError = i32; pub type aclrtStream = *mut core::ffi::c_void;
pub const ACL_SUCCESS: aclError = 0;
#[repr(i32)] #[derive(Clone, Copy)] pub enum Pol { #[doc(alias = "ACL_A")] A = 0, ACL_HI = 0x1000, ACL_NEXT }
#[repr(C)] pub union aclrtV { pub m: u8, pub rsv: [u32; 4] }
#[repr(C)] pub struct aclrtAttr { pub id: Pol, pub value: aclrtV }
#[repr(C)] pub struct aclrtCfg { pub attrs: *mut aclrtAttr, pub num_attrs: usize }
pub struct Table {
    pub aclrtMalloc: unsafe extern "C" fn(*mut *mut c_void, usize, Pol) -> aclError,
    pub get_msg: Option<unsafe extern "C" fn() -> *const c_char>, // acl: aclGetMsg
    pub aclrtOld: unsafe extern "C" fn(s: aclrtStream, extra: u32) -> aclError,
}
type FnAclrtNew = unsafe extern "C" fn() -> aclError; // acl: aclrtNew optional
pub const ACL_STREAM_FAST_LAUNCH: u32 = 2;
"""


def self_test():
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(os.path.join(d, "acl"))
        with open(os.path.join(d, "acl", "acl_rt.h"), "w") as fh:
            fh.write("#include <stddef.h>\n#define ACL_FUNC_VISIBILITY\n#define ACL_DEPRECATED_MESSAGE(x)\n" + SELF_H)
        rs = os.path.join(d, "s.rs")
        with open(rs, "w") as fh:
            fh.write(SELF_RS)
        h, o = Headers(d), Ours()
        RustFile(rs, o)
        ok, bad, absent = compare(h, o, False, None)
        msgs = [b[2].split("\n")[0] for b in bad]
        assert len(absent) == 1, absent
        assert msgs == ["function aclrtOld: 2 arguments, header has 1",
                        "constant ACL_STREAM_FAST_LAUNCH = 2, header has 1"], msgs
        assert ok == 9, ok                   # 2 functions, 4 constants, 3 layouts
        assert h.layout("aclrtAttr") == {"size": 20, "align": 4, "fields": [("id", 0), ("value", 4)]}
        assert "aclrtOld" in h.deprecated
    print("self-test passed")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("sources", nargs="*")
    ap.add_argument("--include", default=os.environ.get("ACL_INCLUDE"))
    ap.add_argument("--strict", action="store_true", help="also signedness, pointer depth, unknown types")
    ap.add_argument("--cc", help="compile a layout probe with this C compiler")
    ap.add_argument("--list", metavar="REGEX", help="print matching header functions, constants, structs")
    ap.add_argument("--matrix", nargs="+", metavar="LABEL=DIR", help="presence per header version")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("--self-test", action="store_true")
    a = ap.parse_args()
    if a.self_test:
        return self_test() or 0
    if a.matrix:
        vs = [x.split("=", 1) for x in a.matrix if "=" in x]
        a.sources = [x for x in a.matrix if "=" not in x] + a.sources
        hs = [(l, Headers(d)) for l, d in vs]
        if a.sources:
            o = Ours()
            for s in a.sources:
                RustFile(s, o) if s.endswith(".rs") else read_list(s, hs[-1][1], o)
            names = [x[0] for x in o.funcs]
        else:
            names = sorted({n for _, h in hs for n in h.funcs if re.match(r"(acl|mstx)", n)})
        if a.list:
            names = [n for n in names if re.search(a.list, n)]
        print("\t".join(["function"] + [l for l, _ in hs]))
        for n in names:
            row, last = [], None
            for _, h in hs:
                if n not in h.funcs:
                    row.append("-")
                    continue
                sig = (str(h.funcs[n][0]), [str(x) for x in h.funcs[n][1]])
                row.append(("yes" if last in (None, sig) else "CHANGED") + ("(depr)" if n in h.deprecated else ""))
                last = sig
            print("\t".join([n] + row))
        return 0
    if not a.include:
        raise SystemExit2("no include directory: set ACL_INCLUDE or give --include")
    h = Headers(a.include)
    if a.list:
        for n in sorted(h.funcs):
            if re.search(a.list, n):
                print(("[deprecated] " if n in h.deprecated else "") + h.funcs[n][2])
        for n in sorted(h.consts):
            if re.search(a.list, n):
                print(f"{n} = {h.consts[n]}")
        for n in sorted(h.aggs):
            if re.search(a.list, n):
                print(f"struct {n}: {h.layout(n)}")
        return 0
    if not a.sources:
        raise SystemExit2("nothing to check")
    o = Ours()
    for s in a.sources:
        RustFile(s, o) if s.endswith(".rs") else read_list(s, h, o)
    if not (o.funcs or o.consts or o.structs):
        raise SystemExit2("no declarations found in " + ", ".join(a.sources))
    ok, bad, absent = compare(h, o, a.strict, a.cc)
    if a.json:
        print(json.dumps({"ok": ok, "different": bad, "absent_optional": absent}, indent=1))
    else:
        for f, ln, msg in bad:
            print(f"{f}:{ln}: {msg}")
        for f, ln, msg in absent:
            print(f"{f}:{ln}: note: {msg} (optional)")
        print(f"{len(o.funcs)} functions, {len(o.consts)} constants, {len(o.structs)} structs: "
              f"{ok} agree, {len(bad)} differ, {len(absent)} optional and absent")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SystemExit2 as e:
        print(f"acl_ffi_check: {e}", file=sys.stderr)
        sys.exit(2)
