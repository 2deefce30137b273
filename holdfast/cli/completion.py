"""The commands `completion` and `man`: shell completion and the manual page, made of what parsers know."""

import argparse
from collections.abc import Iterable, Iterator

from holdfast import __version__
from holdfast.cli import exit_codes
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import print_lines


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    shells = commands.command(
        "completion",
        "print a completion script for a shell",
        alone=lambda given: _completion(commands, given),
    )
    shells.add_argument("shell", choices=list(SHELLS))
    commands.command(
        "man", "print the manual page: `holdfast man | man -l -`", alone=lambda _: _manual(commands)
    )


def _completion(root: CommandParser, arguments: argparse.Namespace) -> int:
    print_lines([SHELLS[arguments.shell](root)])
    return 0


def _manual(root: CommandParser) -> int:
    print_lines([manual(root)])
    return 0


def _key(word: CommandParser) -> str:
    return " ".join(word.path)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    """Return what an argument may be, if that is worth offering: not each of 256 numbers."""
    return tuple(map(str, action.choices)) if isinstance(action.choices, list | tuple) else ()


def _text(action: argparse.Action) -> str:
    return "" if action.help == argparse.SUPPRESS else (action.help or "")


def _values(word: CommandParser) -> Iterator[tuple[str, argparse.Action]]:
    for option in word.options:
        if option.nargs != 0:
            yield from ((flag, option) for flag in option.option_strings)


def _offers(word: CommandParser) -> list[tuple[str, str]]:
    """Return what may stand at this place, each with what it means."""
    offers = [(name, below.text) for name, below in word.below.items()]
    offers += [(choice, _text(argument)) for argument in word.arguments for choice in _choices(argument)]
    return offers + [
        (flag, _text(option)) for option in word.options for flag in option.option_strings if flag[1] == "-"
    ]


def bash(root: CommandParser) -> str:
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
            if _choices(option):
                lines.append(f"    '{_key(word)}:{flag}') words='{' '.join(_choices(option))}' ;;")
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


def zsh(root: CommandParser) -> str:
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
            answer = f"compadd {' '.join(_choices(option))}" if _choices(option) else "_default"
            lines.append(f"    '{_key(word)}:{flag}') {answer}; return ;;")
    lines += ["    esac", '    case "$path_" in']
    for word in root.walk():
        offers = " ".join(
            _quoted(f"{name.replace(':', chr(92) + ':')}:{text}") for name, text in _offers(word)
        )
        lines.append(f"    '{_key(word)}') offers=({offers}) ;;")
    lines += ["    esac", "    _describe holdfast offers", "}", '_holdfast "$@"']
    return "\n".join(lines)


def fish(root: CommandParser) -> str:
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
        lines += [f"{here} -a {name} -d {_quoted(below.text)}" for name, below in word.below.items()]
        for option in word.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag[1] == "-" else f"-s {flag[1:]}" for flag in option.option_strings
            )
            takes = (
                f" -r -a {_quoted(' '.join(_choices(option)))}"
                if _choices(option)
                else " -r" * (option.nargs != 0)
            )
            lines.append(f"{here} {flags}{takes} -d {_quoted(_text(option))}")
    return "\n".join(lines)


def _patterns(root: CommandParser) -> str:
    """Return all paths as one pattern of a shell."""
    return " | ".join(f"'{_key(word)}'" for word in root.walk() if word.path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def manual(root: CommandParser) -> str:
    """Return the manual page, in the language of man(7)."""
    lines = [f'.TH HOLDFAST 1 "" "holdfast {__version__}" "User Commands"', ".SH NAME"]
    lines += ["holdfast \\- use the locks of a Holdfast cluster", ".SH SYNOPSIS"]
    lines += [_roff(_usage(root)), ".SH OPTIONS", *_items(root.options), ".SH COMMANDS"]
    for word in root.walk():
        if word.path and not word.below:
            lines += [f".SS {_roff('holdfast ' + _key(word))}", _roff(word.description or word.text), ".PP"]
            lines += [_roff(_usage(word)), *_items([*word.arguments, *word.options])]
    lines.append(".SH EXIT STATUS")
    for code, meaning in exit_codes.MEANINGS.items():
        lines += [".TP", str(code), _roff(meaning)]
    lines.append(".SH ENVIRONMENT")
    for name, meaning in _ENVIRONMENT.items():
        lines += [".TP", name, _roff(meaning)]
    return "\n".join(lines)


_ENVIRONMENT = {
    "HOLDFAST_NODES": "The nodes, separated by commas.",
    "HOLDFAST_HOLD_ID": "The hold to renew or release.",
    "HOLDFAST_CA, HOLDFAST_CERT, HOLDFAST_KEY": "Files for nodes with TLS.",
    "HOLDFAST_ACCESS_TOKEN_FILE, HOLDFAST_ACCESS_TOKEN": "The access token, for nodes that require one.",
    "NO_COLOR": "If set, nothing is printed in colour.",
}


def _usage(word: CommandParser) -> str:
    return " ".join(word.format_usage().removeprefix("usage: ").split())


def _items(options: Iterable[argparse.Action]) -> Iterator[str]:
    for option in options:
        if "-h" in option.option_strings:
            continue
        value = "" if option.nargs == 0 else "|".join(_choices(option)) or str(option.metavar or option.dest)
        head = " ".join(filter(None, (", ".join(option.option_strings), value)))
        yield from (".TP", f"\\fB{_roff(head)}\\fR", _roff(_text(option)) or "\\&")


def _roff(text: str) -> str:
    """Return a text that means itself."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text
