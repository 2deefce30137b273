"""The command line as data, read from its parser: shell completion and the manual page are made of it."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class Option(NamedTuple):
    """An option: how it is written, what its value is called (empty: it has none), and what it may be."""

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    text: str


class Word(NamedTuple):
    """A command or a part of one: `path` is what stands before, itself included."""

    path: tuple[str, ...]
    text: str
    description: str
    usage: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    below: tuple["Word", ...]

    def walk(self) -> Iterator["Word"]:
        """Yield it, and all below it."""
        yield self
        for word in self.below:
            yield from word.walk()


def read(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), text: str = "") -> Word:
    """Return what a parser takes."""
    options: list[Option] = []
    arguments: list[Option] = []
    below: list[Word] = []
    # argparse has no public way to ask a parser what it takes.
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            below = [
                read(child, (*path, name), texts.get(name, "")) for name, child in action.choices.items()
            ]
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest)
        choices = action.choices if isinstance(action.choices, (list, tuple)) else ()
        told = "" if action.help == argparse.SUPPRESS else (action.help or "") % {"default": action.default}
        option = Option(tuple(action.option_strings), value, tuple(map(str, choices)), told)
        (options if action.option_strings else arguments).append(option)
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    description = parser.description or text
    return Word(path, text, description, usage, tuple(options), tuple(arguments), tuple(below))


def _key(word: Word) -> str:
    return " ".join(word.path)


def _values(word: Word) -> Iterator[tuple[str, Option]]:
    for option in word.options:
        if option.value:
            yield from ((flag, option) for flag in option.flags)


def _offers(word: Word) -> list[tuple[str, str]]:
    """Return what may stand at this place, each with what it means."""
    offers = [(below.path[-1], below.text) for below in word.below]
    offers += [(choice, argument.text) for argument in word.arguments for choice in argument.choices]
    return offers + [
        (flag, option.text) for option in word.options for flag in option.flags if flag[1] == "-"
    ]


def bash(root: Word) -> str:
    """Return the script for bash."""
    lines = [
        '# bash completion of holdfast. Try it: eval "$(holdfast completion bash)"',
        "_holdfast() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} path= words= i",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        if [[ ${COMP_WORDS[i]} == -- ]]; then  # a command of somebody else begins",
        "            compopt -o default; COMPREPLY=(); return",
        "        fi",
        '        case "${path:+$path }${COMP_WORDS[i]}" in',
        f'        {_patterns(root)}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;',
        "        esac",
        "    done",
        '    case "$path:$prev" in',
    ]
    for word in root.walk():
        for flag, option in _values(word):
            if option.choices:
                lines.append(f"    '{_key(word)}:{flag}') words='{' '.join(option.choices)}' ;;")
            else:
                lines.append(f"    '{_key(word)}:{flag}') compopt -o default; COMPREPLY=(); return ;;")
    lines += ["    *)", '        case "$path" in']
    for word in root.walk():
        offers = " ".join(name for name, _ in _offers(word))
        lines.append(f"        '{_key(word)}') words='{offers}' ;;")
    lines += [
        "        esac ;;",
        "    esac",
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
        "}",
        "complete -F _holdfast holdfast",
    ]
    return "\n".join(lines)


def zsh(root: Word) -> str:
    """Return the script for zsh."""
    lines = [
        "#compdef holdfast",
        "# zsh completion of holdfast: a file _holdfast in a folder of $fpath.",
        "_holdfast() {",
        "    local path_= word; local -a offers",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        "        [[ $word == -- ]] && { _default; return }",
        '        case "${path_:+$path_ }$word" in',
        f'        {_patterns(root)}) path_="${{path_:+$path_ }}$word" ;;',
        "        esac",
        "    done",
        '    case "$path_:${words[CURRENT-1]}" in',
    ]
    for word in root.walk():
        for flag, option in _values(word):
            answer = f"compadd {' '.join(option.choices)}" if option.choices else "_default"
            lines.append(f"    '{_key(word)}:{flag}') {answer}; return ;;")
    lines += ["    esac", '    case "$path_" in']
    for word in root.walk():
        offers = " ".join(
            _quoted(f"{name.replace(':', chr(92) + ':')}:{text}") for name, text in _offers(word)
        )
        lines.append(f"    '{_key(word)}') offers=({offers}) ;;")
    lines += ["    esac", "    _describe holdfast offers", "}", '_holdfast "$@"']
    return "\n".join(lines)


def fish(root: Word) -> str:
    """Return the script for fish."""
    lines = [
        "# fish completion of holdfast: a file holdfast.fish in ~/.config/fish/completions.",
        "function __holdfast_path",
        "    set -l path",
        "    for word in (commandline -opc)[2..]",
        "        test $word = --; and return 1",
        '        switch (string join " " $path $word)',
        f"            case {' '.join(_quoted(_key(word)) for word in root.walk() if word.path)}",
        "                set path $path $word",
        "        end",
        "    end",
        '    test (string join " " $path) = "$argv"',
        "end",
        "complete -c holdfast -f",
    ]
    for word in root.walk():
        here = f"complete -c holdfast -n {_quoted('__holdfast_path ' + _key(word))}"
        lines += [f"{here} -a {below.path[-1]} -d {_quoted(below.text)}" for below in word.below]
        for option in word.options:
            flags = " ".join(f"-l {flag[2:]}" for flag in option.flags if flag[1] == "-")
            takes = (
                f" -r -a {_quoted(' '.join(option.choices))}"
                if option.choices
                else " -r" * bool(option.value)
            )
            lines.append(f"{here} {flags}{takes} -d {_quoted(option.text)}")
    return "\n".join(lines)


def _patterns(root: Word) -> str:
    """Return all paths as one pattern of a shell."""
    return " | ".join(f"'{_key(word)}'" for word in root.walk() if word.path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def manual(root: Word, version: str, exit_codes: dict[int, str]) -> str:
    """Return the manual page, in the language of man(7)."""
    lines = [f'.TH HOLDFAST 1 "" "holdfast {version}" "User Commands"', ".SH NAME"]
    lines += ["holdfast \\- use the locks of a Holdfast cluster", ".SH SYNOPSIS"]
    lines += [_roff(root.usage), ".SH OPTIONS", *_items(root.options), ".SH COMMANDS"]
    for word in root.walk():
        if word.path and not word.below:
            lines += [
                f".SS {_roff('holdfast ' + _key(word))}",
                _roff(word.description.rstrip(".") + "."),
                ".PP",
            ]
            lines += [_roff(word.usage), *_items((*word.arguments, *word.options))]
    lines.append(".SH EXIT STATUS")
    for code, meaning in exit_codes.items():
        lines += [".TP", str(code), _roff(meaning)]
    lines += [".SH ENVIRONMENT", ".TP", "HOLDFAST_NODES", "The nodes, separated by commas."]
    lines += [".TP", "HOLDFAST_HOLD_ID", "The hold to renew or release."]
    lines += [".TP", "HOLDFAST_CA, HOLDFAST_CERT, HOLDFAST_KEY", "Files for nodes with TLS.", ".TP"]
    return "\n".join([*lines, "NO_COLOR", "If set, nothing is printed in colour."])


def _items(options: tuple[Option, ...]) -> Iterator[str]:
    for option in options:
        if "-h" in option.flags:
            continue
        value = "|".join(option.choices) or option.value
        head = ", ".join(option.flags) + (
            f" {value}" if value and option.flags else "" if option.flags else value
        )
        yield from (".TP", f"\\fB{_roff(head)}\\fR", _roff(option.text) or "\\&")


def _roff(text: str) -> str:
    """Return a text that means itself."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text
