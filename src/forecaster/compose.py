"""From the files in conf/ and what was typed to a checked configuration; a mistake in either is told in one line."""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import AliasToken, MarkedYAMLError, YAMLError

from forecaster.config import Config, keys, validate
from forecaster.errors import ConfigError
from forecaster.explain import TYPED, conf_directory, display, explain, groups, origin, parsed, quoted, unknown, within
from forecaster.sources import SOURCES, shown

# What a run was trained with: the verbs that start from a trained run can't change it.
RUNTIME = ("data.in_memory_gb", "trainer.threads")  # these change no number
TRAINED = ("experiment", "experiment_name", "seed", "init", "data", "split", "model", "trainer", "logger")
MAPPINGS = ("source.columns",)  # keys whose value is a map
# Hydra, Optuna and Ray call by name what stands under these keys: a file from elsewhere may name only these.
CALLED = ("_target_", "()", "class", "factory", "custom_search_space", "worker_process_setup_hook", "py_executable")
CALLABLE = ("hydra._internal.core_plugins.", "hydra_plugins.", "logging.", "optuna.samplers.")


@cache
def _unique(process: int) -> str:
    return f"{process}-{secrets.token_hex(3)}"


# A process has one folder, its own even where two start in the same second (on two machines, with the same number).
OmegaConf.register_new_resolver("unique", lambda: _unique(os.getpid()), use_cache=True, replace=True)
_store = ConfigStore.instance()
_store.store("schema", Config)
for _kind, _source in SOURCES.items():
    _store.store(f"{_kind}_schema", _source, group="source")


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Compose conf/train.yaml and the overrides into a checked configuration; raises ConfigError."""
    composed = composition(overrides)
    config = typed(composed)
    checked(config, partial(origin, hydra=composed.hydra))
    return config


def configured(overrides: Sequence[str] = ()) -> Config:
    """The configuration of conf/train.yaml and the overrides, checked; raises ConfigError."""
    composed = composition(overrides)
    return checked(typed(composed), partial(origin, hydra=composed.hydra))


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a run's saved config.yaml; an override changes a value or composes a part afresh (source=planted).

    Raises ConfigError for what the schema refuses, and for an override of what the run was trained with.
    """
    place = display(path)
    try:
        config = _written(path.read_text(encoding="utf-8"), place)
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be read ({error.strerror or error}); give run= the directory of a run"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place} is no text in UTF-8; restore the config.yaml that the training wrote") from error
    # A part composed afresh first, whatever the order typed: source.symbols=SP500 source=bundled.
    changes = sorted(parsed(overrides), key=lambda change: change.key_or_group not in groups())
    for change in changes:
        _refuse_change(change, config, place)
        config = changed(config, change)
    names = [change.key_or_group for change in changes]
    return checked(config, lambda key: TYPED if any(within(key, name) for name in names) else place)


def differences(config: Config, text: str, place: str) -> list[str]:
    """What a run's configuration says otherwise than the one in its checkpoint, key by key, with both values.

    Compared is what weights were trained with; ConfigError where the text is none of a training.
    """
    ours, theirs = OmegaConf.structured(config), _written(text, place)
    return [
        f"{key} is {shown(there)} in the checkpoint and {shown(here)} in the run's configuration"
        for key in keys()
        if any(within(key, part) for part in TRAINED) and key not in RUNTIME
        for here, there in [(_plain(ours, key), _plain(theirs, key))]
        if here != there
    ]


def to_yaml(config: Config) -> str:
    """The whole configuration as the text of a config.yaml that `load` reads."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def composition(overrides: Sequence[str]) -> DictConfig:
    """Compose files and overrides, Hydra's own node included: keys and types are right, values are not yet checked."""
    lines = parsed(overrides)
    for line in lines:
        _refuse_sweep(line)
        _refuse_unknown(line)
    try:
        with initialize_config_dir(str(conf_directory()), version_base="1.3", job_name="train"):
            loader = GlobalHydra.instance().config_loader()
            composed = loader.load_configuration("train", list(overrides), run_mode=RunMode.RUN)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise explain(error, TYPED, lines) from error
    _refuse_calls(OmegaConf.to_container(composed.hydra), "hydra")
    return composed


def typed(config: Any, place: str = "conf/") -> DictConfig:
    """The keys of Config alone, each known and of its type: Hydra lets `+model.hedas=2` pass, this does not."""
    if not OmegaConf.is_dict(config):
        raise ConfigError(f"a configuration has keys, and here are none (in {place}); see conf/train.yaml")
    plain = cast("dict[str, Any]", OmegaConf.to_container(config))
    source = cast("dict[str, Any] | None", plain.get("source"))
    kind = source.get("kind") if isinstance(source, dict) else source
    if not isinstance(source, dict) or not isinstance(kind, str) or kind not in SOURCES:
        raise ConfigError(f"source.kind={shown(kind)} is not known (in {place}); choose one of {', '.join(SOURCES)}")
    for key in ("symbols", "path"):
        if source.get(key) is not None and source[key] != "???" and not isinstance(source[key], list):
            source[key] = [source[key]]
    plain.pop("hydra", None)
    schema = OmegaConf.structured(Config)
    try:
        schema.source = OmegaConf.structured(SOURCES[kind])
        return cast(DictConfig, OmegaConf.merge(schema, plain))
    except OmegaConfBaseException as error:
        raise explain(error, place) from error


def checked(config: DictConfig, where: Callable[[str], str]) -> Config:
    """Every value resolved and found possible; `where` names the place that gave a key its value."""
    try:
        resolved = cast(Config, OmegaConf.to_object(config))
    except OmegaConfBaseException as error:
        raise explain(error, where(error.full_key or "")) from error
    validate(resolved, where)
    return resolved


def changed(config: DictConfig, change: Override) -> DictConfig:
    """A configuration with one value replaced, or one part by that of the name given."""
    name = change.key_or_group
    plain = cast("dict[str, Any]", OmegaConf.to_container(config))
    if name in groups():
        fresh = composition(["~experiment", str(change.input_line)])
        return typed(OmegaConf.create({**plain, name: OmegaConf.to_container(fresh[name])}), TYPED)
    try:
        OmegaConf.update(config, name, change.value())
    except OmegaConfBaseException as error:
        raise explain(error, TYPED) from error
    return typed(config, TYPED)


def _written(text: str, place: str) -> DictConfig:
    """The configuration that a training wrote; nothing in it is called or looked up.

    Keys that came after the release which wrote it have the values that the schema gives them.
    """
    try:
        # A few lines that refer to one another can stand for more than any memory holds; no training writes such.
        if any(isinstance(token, AliasToken) for token in cast("Iterator[object]", yaml.scan(text))):
            raise YAMLError("aliases")
        config = OmegaConf.create(text)
    except (YAMLError, OmegaConfBaseException, AssertionError, RecursionError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{place}{where}: no configuration; restore the one that the training wrote") from error
    _refuse_foreign(OmegaConf.to_container(config), "", place)
    return typed(config, place)


def _refuse_foreign(node: Any, path: str, place: str) -> None:
    if isinstance(node, dict):
        for key, value in cast("dict[str, Any]", node).items():
            if key == "_target_":
                raise ConfigError(
                    f"{path}{key} would name code to call (in {place}); no training writes that: don't trust it"
                )
            _refuse_foreign(value, f"{path}{key}.", place)
    elif isinstance(node, list):
        for number, item in enumerate(cast("list[Any]", node)):
            _refuse_foreign(item, f"{path}{number}.", place)
    elif isinstance(node, str) and "${" in node:
        raise ConfigError(
            f"{path[:-1]}={node} is to be looked up (in {place}); no training writes that: don't trust it"
        )


def _plain(config: DictConfig, key: str) -> Any:
    value = OmegaConf.select(config, key)
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _refuse_change(change: Override, config: DictConfig, place: str) -> None:
    name, line = change.key_or_group, change.input_line
    if name not in RUNTIME and any(within(name, part) for part in TRAINED):
        had = OmegaConf.select(config, name)
        told = "" if had is None or OmegaConf.is_config(had) else f" with {name}={shown(had)}"
        raise ConfigError(
            f"{line} cannot change a run that was trained{told} (in {place}); train anew: train.py {line}"
        )
    if change.is_sweep_override() or change.type != OverrideType.CHANGE:
        raise ConfigError(f"{line} does not set one value (in {TYPED}); write {name}=VALUE")
    _refuse_unknown(change)


def _refuse_sweep(line: Override) -> None:
    if line.is_sweep_override():
        key = line.key_or_group
        bracket = f", or write {key}=[{line.get_value_string()}] for a list" if keys().get(key) == list[str] else ""
        raise ConfigError(f"{line.input_line} has several values (in {TYPED}); add -m to run each{bracket}")


def _refuse_unknown(line: Override) -> None:
    key, value = line.key_or_group, line.value()
    if within(key, "hydra") or key.startswith("hydra/"):
        return
    if key in groups():
        if not line.is_delete() and not isinstance(value, str | dict):
            choices = ", ".join(groups()[key])
            raise ConfigError(f"{line.input_line} names no file of conf/{key}/ (in {TYPED}); choose one of {choices}")
    elif any(within(key, mapping) and key != mapping for mapping in MAPPINGS):
        part, _, name = key.rpartition(".")
        raise ConfigError(
            f"{line.input_line} sets one entry of a map (in {TYPED}); give the whole: '{part}={{{name}: NAME}}'"
        )
    elif not any(within(known, key) for known in keys()):
        raise unknown(key, TYPED)
    elif line.is_delete() or line.is_add():
        raise ConfigError(f"{line.input_line}: every run has this key (in {TYPED}); write {key}=VALUE")
    if key == "source.kind":
        raise ConfigError(f"{line.input_line} cannot be set alone (in {TYPED}); choose the source with source=NAME")
    symbols = value if isinstance(value, list) else [value]
    if key == "source.symbols" and not all(isinstance(symbol, str) for symbol in symbols):
        quote = quoted(str(line.input_line))
        raise ConfigError(f"{line.input_line} holds a value where text is meant (in {TYPED}); quote symbols: {quote}")


def _refuse_calls(node: Any, path: str) -> None:
    if isinstance(node, dict):
        for key, value in cast("dict[str, Any]", node).items():
            if key in CALLED and value is not None and not str(value).startswith(CALLABLE):
                raise ConfigError(f"{path}.{key}={value} is code called by name (in {TYPED} or a file); remove it")
            _refuse_calls(value, f"{path}.{key}")
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            _refuse_calls(item, path)
