"""Names of files in a settings file, relative to that file.

A run is described by a folder: settings, data and a reward beside each other. It must not matter where it is started.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

# The settings that name something to load; run.output_dir stays relative to where the command is run.
LOADING = ("environment", "model_name", "reward_name", "sources", "tool_sources")
IN_REWARD = "name"
OPTIONS = ("options", "reward_options")
COMMANDS, WORDS = ("mcp:", "program:"), re.compile(r"[^\s'\"]+")
PREFIXES = ("python:", "conversation:")


def beside(settings: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """The settings, with every name of a file that exists in `folder` made relative to the working directory."""
    return settings if not folder else {key: _placed(key, value, folder) for key, value in settings.items()}


def _placed(key: str, value: Any, folder: str, section: str = "") -> Any:
    name = key.rpartition(".")[2]
    if isinstance(value, Mapping):
        inner = name if name in OPTIONS else section or name
        return {own: _placed(own, one, folder, inner) for own, one in value.items()}
    named = name in LOADING or (name == IN_REWARD and "reward" in (section, key.partition(".")[0]))
    if not named and section not in OPTIONS:
        return value
    if isinstance(value, list):
        return [_in_folder(one, folder) for one in value]
    return _in_folder(value, folder)


def _in_folder(name: Any, folder: str) -> Any:
    """The name with the folder before its path, if there is such a file; a bare word is not a path."""
    if not isinstance(name, str):
        return name
    command = next((prefix for prefix in COMMANDS if name.startswith(prefix)), "")
    if command:
        return command + WORDS.sub(lambda word: _in_folder(word[0], folder), name.removeprefix(command))
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    path, colon, attribute = name.removeprefix(prefix).partition(".py:")
    path += ".py" if colon else ""
    if os.path.isabs(path) or not ("." in path or "/" in path):
        return name
    there = os.path.normpath(os.path.join(folder, path))
    return f"{prefix}{there}{':' if colon else ''}{attribute}" if os.path.exists(there) else name
