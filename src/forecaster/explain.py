"""What is wrong with a configuration, in which place, and what to do: Hydra's and OmegaConf's errors in one line."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError

from forecaster.config import keys
from forecaster.errors import ConfigError
from forecaster.sources import shown

TYPED = "the command line"
HYDRA = (
    *("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.verbose", "hydra.searchpath"),
    *("hydra.launcher.ray.init.address", "hydra.launcher.timeout_min", "hydra.launcher.partition"),
    *("hydra.sweeper.n_trials", "hydra.sweeper.n_jobs", "hydra.sweeper.storage", "hydra.sweeper.study_name"),
)
# Launchers and sweepers that Hydra has from elsewhere: the extra of pyproject.toml that brings each.
EXTRAS = {
    "hydra/launcher=ray": "ray",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/sweeper=optuna": "optuna",
}
WANTED: dict[Any, tuple[str, str]] = {  # a type, in words and as an example
    int: ("a whole number", "1"),
    float: ("a number", "0.1"),
    bool: ("true or false", "true"),
    str: ("text", "name"),
    list[str]: ("a list", "[name]"),
    str | None: ("text or null", "name"),
    int | None: ("a whole number or null", "1"),
}


def conf_directory() -> Path:
    """The folder conf/: inside an installed package, at the root of a checkout otherwise."""
    package = Path(__file__).resolve().parent
    return package / "conf" if (package / "conf").is_dir() else package.parents[1] / "conf"


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """The parts of a configuration that are chosen by name, each with its choices."""
    folders = sorted(folder for folder in conf_directory().iterdir() if folder.is_dir())
    return {folder.name: tuple(sorted(file.stem for file in folder.glob("*.yaml"))) for folder in folders}


def parsed(overrides: Sequence[str]) -> list[Override]:
    """What was typed, read by Hydra's grammar; raises ConfigError with the quotes that a value needs."""
    for line in overrides:
        if not re.match(r"[+~]*\w", line):
            raise ConfigError(f"{line} is not key=value (in {TYPED}); write key=value")
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        line = error.override
        if "=" not in line:
            raise ConfigError(f"{line} is not key=value (in {TYPED}); write {line}=VALUE") from error
        raise ConfigError(f"{line} cannot be read (in {TYPED}); quote inside quotes: {quoted(line)}") from error


def quoted(line: str) -> str:
    """key=value with every text quoted for Hydra, and the whole for the shell: 'source.symbols=["^GSPC"]'."""
    key, value = line.split("=", 1)
    items = value.strip("[]").split(",") if value.startswith("[") else [value]
    texts = ",".join('"' + item.strip().strip("\"'") + '"' for item in items)
    return f"'{key}=[{texts}]'" if value.startswith("[") or key == "source.symbols" else f"'{key}={texts}'"


def within(key: str, part: str) -> bool:
    """Whether a dotted key is the part itself or lies below it."""
    return key == part or key.startswith(part + ".")


def unknown(key: str, place: str) -> ConfigError:
    """The error for a key that the schema does not have, with the nearest one that it has."""
    if key.rpartition(".")[2] == "_target_":
        return ConfigError(f"{key} would name code to call (in {place}); remove it: nothing is called by name here")
    if key in keys():
        return ConfigError(f"{key} belongs to another kind of source (in {place}); choose it with source=NAME")
    if key == "experiment":
        return ConfigError(f"{key} has no keys of its own (in {place}); begin the file with: # @package _global_")
    part, _, end = key.rpartition(".")
    names = [*(name for name in keys() if name != "source.kind"), *HYDRA]
    beside = {name.removeprefix(f"{part}."): name for name in names if within(name, part)}
    if not part:
        beside = {name: name for name in [*groups(), *(name for name in keys() if "." not in name)]}
    ends = {name.rpartition(".")[2]: name for name in names}
    close = [beside[near] for near in get_close_matches(end, beside, 1, 0.6)]
    close += [ends[near] for near in get_close_matches(end, ends, 1, 0.8)]  # the part left out, or another part's key
    close += get_close_matches(key, names, 1, 0.8)
    remedy = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(beside.values() or groups())}"
    return ConfigError(f"{key} is not a key (in {place}); {remedy}")


def explain(error: Exception, place: str, overrides: Sequence[Override] = ()) -> ConfigError:
    """The one line for an error of Hydra, OmegaConf or YAML; `place` is where it was made unless the error says so."""
    text = str(error)
    named = re.match(r"In '([^']+)'", text)
    if named and named[1] not in ("train", "hydra/config"):
        place = config_file(named[1], overrides)
    place = display(place)
    if isinstance(error, MissingConfigException):
        return _missing_choice(text, place, overrides)
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return ConfigError(f"{error.problem} (in {display(mark.name)}, line {mark.line + 1}); write valid YAML")
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return _wrong_key(cause, cause.full_key, place)
    if isinstance(cause, OmegaConfBaseException):
        text = str(cause.msg).splitlines()[0]
    return ConfigError(f"{_one_line(text)} (in {place}); see --help for what can be given")


def _missing_choice(text: str, place: str, overrides: Sequence[Override]) -> ConfigError:
    """Hydra's "Could not find 'group/choice'", with the choices that it lists one a line behind a tab."""
    asked = re.search(r"Could not find '([^'\n]*)/([^'\n]*)'", text)
    if not asked:
        return ConfigError(f"{_one_line(text)} (in {place}); see --help for what can be given")
    if extra := EXTRAS.get(choice := f"{asked[1]}={asked[2]}"):
        install = f"pip install -e '.[{extra}]' in the project's folder"
        return ConfigError(f"{choice} needs a package that is missing: {install}")
    choices = [name for name in re.findall(r"^\t([^\s=]+)$", text, re.MULTILINE) if not name.endswith("_schema")]
    given = {line.key_or_group: line.value() for line in overrides}
    if asked[1] not in given and "experiment" in given:  # Hydra says 'train', whose choice the experiment replaced
        place = config_file(f"experiment/{given['experiment']}", overrides)
    close = get_close_matches(asked[2], choices, n=1)
    meant = f"did you mean {close[0]}? Choose" if close else "choose"
    return ConfigError(f"{asked[1]}={asked[2]} does not exist (in {place}); {meant} one of {', '.join(choices)}")


def _wrong_key(error: OmegaConfBaseException, key: str, place: str) -> ConfigError:
    if isinstance(error, ConfigKeyError | ConfigAttributeError):
        return unknown(key, place)
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(f"{key} is not set (in {place}); give {key}=VALUE")
    wanted = WANTED.get(keys().get(key))
    if isinstance(error, InterpolationResolutionError) or wanted is None:
        return ConfigError(f"{key}: {str(error.msg).splitlines()[0]} (in {place}); give it a value of its own")
    words, example = wanted
    if isinstance(error.value, str) and example == "[name]":
        example = f"[{error.value}]"
    return ConfigError(f"{key}={shown(error.value)} is not {words} (in {place}); write, for example, {key}={example}")


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def config_file(name: str, overrides: Sequence[Override]) -> str:
    """The file of a name such as experiment/sp500: in conf/, or in a folder that hydra.searchpath adds to it."""
    added = [line.value() for line in overrides if line.key_or_group == "hydra.searchpath"]
    paths = [str(path).removeprefix("file://") for paths in added if isinstance(paths, list) for path in paths]
    files = [folder / f"{name}.yaml" for folder in [conf_directory(), *map(Path, paths)]]
    return display(next((file for file in files if file.is_file()), name))


def origin(key: str, hydra: DictConfig) -> str:
    """The place that gave a key its value: the command line, the experiment's file, or that of the part's choice."""
    lines = parsed(cast("list[str]", OmegaConf.to_container(hydra.overrides.task)))
    if any(within(key, line.key_or_group) and line.key_or_group not in groups() for line in lines):
        return TYPED
    part, _, rest = key.partition(".")
    choices = hydra.runtime.choices
    places = [(f"experiment/{choices.get('experiment')}", key), (f"{part}/{choices.get(part)}", rest), ("train", key)]
    folders = [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]
    for name, inside in places:
        for file in (folder / f"{name}.yaml" for folder in folders):
            if setter := _setter(file, inside):
                return display(setter)
    if choices.get(part) and (file := conf_directory() / part / f"{choices[part]}.yaml").is_file():
        return display(file)
    experiments = [file for folder in folders if (file := folder / f"{places[0][0]}.yaml").is_file()]
    return display(experiments[0]) if experiments else TYPED


def _setter(file: Path, key: str) -> Path | None:
    """The file that sets a key: this one, or the last of those beside it that its defaults name."""
    if not key or not file.is_file():
        return None
    config = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.load(file)))
    value: Any = config
    for name in key.split("."):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    if value not in (None, "???"):
        return file
    beside = [name for name in config.get("defaults", []) if isinstance(name, str) and name != "_self_"]
    found = (_setter(file.with_name(f"{name}.yaml"), key) for name in reversed(beside))
    return next((setter for setter in found if setter), None)


def display(place: object) -> str:
    """A path as it reads shortest: relative where it lies below the working directory."""
    path = Path(str(place))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(place)
