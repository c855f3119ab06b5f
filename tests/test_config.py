"""The schema, its defaults in conf/, and what is refused; the messages themselves are in test_cli.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from yaml import safe_load

from forecaster.bars.files.layouts import OURS
from forecaster.bars.yahoo import chart
from forecaster.compose import changed, checked, compose, load, to_yaml
from forecaster.config import BASELINES, LIMITS, TARGETS, Config, Probes, keys, validate
from forecaster.errors import ConfigError
from forecaster.explain import conf_directory, groups, parsed, quoted, within
from forecaster.forecasts import baselines
from forecaster.sources import INTERVALS, NAMES, Bundled, Planted, shown
from forecaster.windows import targets

EXPERIMENTS = sorted(file.stem for file in (conf_directory() / "experiment").glob("*.yaml"))


# What a user has to say besides.
NEEDED = {
    "source=files": ["source.path=a.csv"],
    "source=yahoo": ["source.symbols=[AAPL]"],
    "experiment=own": ["source.path=a.csv"],
}


def composed(*overrides: str) -> Config:
    overrides = (*overrides, *(line for asked in overrides for line in NEEDED.get(asked, [])))
    config = OmegaConf.to_object(compose(overrides))
    assert isinstance(config, Config)
    return config


@pytest.fixture(scope="module")
def bases() -> dict[str, DictConfig]:
    return {kind: compose([f"source={kind}"]) for kind in ("bundled", "planted")}


def with_values(base: DictConfig, *lines: str) -> Config:
    """A composed configuration with values replaced: the checks alone, without Hydra's work."""
    config = base.copy()
    for line in parsed(lines):
        config = changed(config, line)
    return checked(config, lambda key: "a test")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(composed("experiment=sp500", "model.heads=4", "seed=7")), encoding="utf-8")
    return path


def test_names_known_here_are_those_of_the_parts_that_use_them() -> None:
    assert TARGETS == targets.TARGETS
    assert BASELINES == baselines.BASELINES
    assert sorted(NAMES) == sorted(OURS)
    assert set(INTERVALS) <= set(chart.INTERVALS)


def test_default_is_the_sp500_experiment() -> None:
    assert composed() == composed("experiment=sp500")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_under_its_own_name_and_says_what_it_is(experiment: str) -> None:
    assert composed(f"experiment={experiment}").experiment_name == experiment
    lines = (conf_directory() / "experiment" / f"{experiment}.yaml").read_text().splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1].startswith("# ")


@pytest.mark.parametrize("choice", [f"{group}={name}" for group in groups() for name in groups()[group]])
def test_every_choice_of_every_part_composes(choice: str) -> None:
    composed(choice)


def test_parts_are_those_of_the_schema_and_every_limit_is_of_a_key() -> None:
    parts = {key.partition(".")[0] for key in keys() if "." in key}
    assert set(groups()) == parts | {"experiment"}
    assert set(LIMITS) <= set(keys())


def test_every_default_stands_in_the_files_so_that_the_schema_has_none() -> None:
    assert OmegaConf.missing_keys(OmegaConf.structured(Config)) >= {"seed", "model", "data", "baselines"}


def test_planted_source_takes_the_seed_of_the_run_unless_it_has_its_own() -> None:
    source = composed("experiment=planted_weekly", "seed=5").source
    assert source == Planted(market="weekly", bars=18000, seed=5, phi=0.7)
    source = composed("experiment=planted_weekly", "seed=5", "source.seed=6").source
    assert isinstance(source, Planted)
    assert source.seed == 6


def test_source_of_another_kind_replaces_the_experiments_source() -> None:
    assert isinstance(composed("experiment=sp500", "source=planted").source, Planted)
    assert composed("experiment=sp500", "source=bundled").source == Bundled(symbols=["SP500", "NASDAQ"])


@pytest.mark.parametrize(
    ("override", "symbols"),
    [
        ("source.symbols=SP500", ["SP500"]),
        ("source.symbols=[NA,NO]", ["NA", "NO"]),
        ('source.symbols="1E5"', ["1E5"]),
        ('source.symbols=["TRUE","NULL","7203","005930","1E5"]', ["TRUE", "NULL", "7203", "005930", "1E5"]),
        ('source.symbols=["^GSPC","EURUSD=X","M&M.NS"]', ["^GSPC", "EURUSD=X", "M&M.NS"]),
    ],
)
def test_symbols_stay_text_and_one_is_a_list_of_one(override: str, symbols: list[str]) -> None:
    source = composed(override).source
    assert isinstance(source, Bundled)
    assert source.symbols == symbols


@pytest.mark.parametrize("value", ["TRUE", "NULL", "NAN", "1E5", "7203", "[A,7203]", "[A,[B]]", "{A:1}", "[]", "[A,A]"])
def test_symbols_that_are_not_distinct_texts_are_refused(value: str, bases: dict[str, DictConfig]) -> None:
    with pytest.raises(ConfigError, match=r"source\.symbols"):
        with_values(bases["bundled"], f"source.symbols={value}")


@pytest.mark.parametrize("key", sorted(LIMITS))
def test_value_is_refused_at_an_open_end_or_beyond_a_closed_one_and_taken_inside(
    key: str, bases: dict[str, DictConfig]
) -> None:
    interval = LIMITS[key]
    low, high = (float(end) for end in interval[1:-1].split(","))
    base = bases["planted" if key.startswith("source.") else "bundled"].copy()
    base.model.heads = 1  # divides any width
    outside = [low - 1 if interval[0] == "[" else low] + ([high] if interval[-1] == ")" and high < 1e9 else [])
    whole = keys()[key] is not float
    for value in outside:
        with pytest.raises(ConfigError, match=rf"^{key}=\S+ is outside "):
            with_values(base, f"{key}={int(value) if whole else value}")
    with_values(base, f"{key}={int(low) if whole else (max(low, 0) + min(high, 1)) / 2}")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_that_are_not_finite_are_refused(value: str, bases: dict[str, DictConfig]) -> None:
    with pytest.raises(ConfigError, match=r"model\.optimizer\.lr"):
        with_values(bases["bundled"], f"model.optimizer.lr={value}")


@pytest.mark.parametrize(
    ("train", "validation", "faulty"),
    [
        ("0.7", "0.85", None),
        ("2012-12-31", "2014-12-31", None),
        ("2012-12-31", "0.85", None),  # which comes first only the bars can tell
        ("0.85", "0.85", "validation_end"),
        ("2014-12-31", "2014-12-31", "validation_end"),
        ("0.9", "0.85", "validation_end"),
        ("1.0", "0.85", "train_end"),
        ("0", "0.85", "train_end"),
        ("2012", "2014-12-31", "train_end"),
        ("2012-13-01", "2014-12-31", "train_end"),
        ("2012-2-30", "2014-12-31", "train_end"),
        ("soon", "2014-12-31", "train_end"),
        ("true", "0.85", "train_end"),
        ("0.7", "[0.85]", "validation_end"),
    ],
)
def test_ends_of_the_parts_are_dates_or_fractions_in_order(
    train: str, validation: str, faulty: str | None, bases: dict[str, DictConfig]
) -> None:
    overrides = [f"split.train_end={train}", f"split.validation_end={validation}"]
    if faulty is None:
        with_values(bases["bundled"], *overrides)
    else:
        with pytest.raises(ConfigError, match=rf"^split\.{faulty}="):
            with_values(bases["bundled"], *overrides)


@pytest.mark.parametrize(("width", "heads"), [(64, 64), (64, 1), (6, 3), (1, 1)])
def test_heads_that_divide_the_width_are_taken(width: int, heads: int, bases: dict[str, DictConfig]) -> None:
    assert with_values(bases["bundled"], f"model.width={width}", f"model.heads={heads}").model.heads == heads


def test_validation_names_the_place_it_is_given(bases: dict[str, DictConfig]) -> None:
    config = with_values(bases["bundled"])
    wrong = replace(config, model=replace(config.model, heads=3))
    with pytest.raises(ConfigError, match=r"does not divide model\.width=64 \(in a\.yaml\)"):
        validate(wrong, lambda key: "a.yaml")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (0, "0"),
        (0.5, "0.5"),
        (["a", None, 1], "[a,null,1]"),
    ],
)
def test_values_are_shown_as_they_are_typed(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("source.symbols=[^GSPC]", """'source.symbols=["^GSPC"]'"""),
        ("source.symbols=^GSPC", """'source.symbols=["^GSPC"]'"""),
        ("source.symbols=[GC=F, 'M&M.NS']", """'source.symbols=["GC=F","M&M.NS"]'"""),
        ("hydra.run.dir=a=b", """'hydra.run.dir="a=b"'"""),
    ],
)
def test_quotes_suggested_make_the_override_readable(line: str, expected: str) -> None:
    assert quoted(line) == expected
    compose([expected.strip("'")])


def test_key_is_within_a_part_by_whole_names() -> None:
    assert all(within(key, "model") for key in ("model", "model.heads"))
    assert not within("modelled.heads", "model")


@pytest.mark.parametrize("experiment", ["sp500", "planted_noise"])
def test_saved_configuration_is_read_back_equal(tmp_path: Path, experiment: str) -> None:
    config = composed(f"experiment={experiment}", "seed=7")
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert load(path) == config
    assert "${" not in path.read_text()


def test_part_named_with_a_saved_run_replaces_its_own_and_keeps_the_rest(saved: Path) -> None:
    before, after = load(saved), load(saved, ["source=planted", "source.market=noise", "baselines=[har]"])
    assert after.source == Planted(market="noise", bars=18000, seed=7, phi=0.7)
    assert after.baselines == ["har"]
    assert replace(after, source=before.source, baselines=before.baselines) == before


def test_values_change_in_a_saved_run_and_a_single_symbol_is_a_list(saved: Path) -> None:
    after = load(saved, ["source.symbols=NASDAQ", "source=bundled", "baselines=[har]"])
    assert after.source == Bundled(symbols=["NASDAQ"])
    assert after.baselines == ["har"]


@pytest.mark.parametrize(
    "override",
    [
        *("model.heads=8", "model=attention", "data.horizon=2", "data=default", "trainer.max_epochs=1"),
        *(
            "split.train_end=.5",
            "seed=1",
            "experiment=smoke",
            "experiment_name=x",
            "++model.heads=8",
            "~data.horizon",
            "model.hedas=2",
        ),
    ],
)
def test_what_a_run_was_trained_with_does_not_change(saved: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="cannot change a run that was trained"):
        load(saved, [override])


def test_a_trained_run_can_be_probed_otherwise(saved: Path) -> None:
    assert load(saved, ["probes=strict", "probes.random_inits=3"]).probes == Probes(
        enabled=True, causal=True, random_inits=3, noise_seeds=5, pruning=True, drift=True
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("source=foo", "source=foo does not exist (in the command line)"),
        ("source.kind=planted", "source.kind=planted cannot be set alone"),
        ("source.market=noise", "source.market belongs to another kind of source (in the command line)"),
        ("source.symbls=A", "source.symbls is not a key (in the command line); did you mean source.symbols?"),
        ("debug=x", "debug=x is not true or false (in the command line)"),
        ("debug=true,false", "debug=true,false does not set one value"),
        ("+debug=true", "+debug=true does not set one value"),
        ("baselines=[arima]", "arima"),
        ("source.symbols=[7203]", "holds a value where text is meant (in the command line)"),
    ],
)
def test_wrong_override_of_a_saved_run_names_the_command_line(saved: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(saved, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"model": {"hedas": 2}}, "model.hedas is not a key (in {path}); did you mean model.heads?"),
        ({"model": {"heads": 3}}, "model.heads=3 does not divide model.width=64 (in {path})"),
        ({"model": {"heads": "x"}}, "model.heads=x is not a whole number (in {path})"),
        ({"source": {"kind": "reuters"}}, "source.kind=reuters is not known (in {path}); choose one of bundled, files"),
        ({"source": {"_target_": "os.system"}}, "source._target_ would name code to call (in {path})"),
        ({"extra": 1}, "extra is not a key (in {path})"),
        ({"seed": "???"}, "seed is not set (in {path})"),
        ({"seed": "${nowhere}"}, "seed=${{nowhere}} is to be looked up (in {path})"),
    ],
)
def test_wrong_saved_configuration_names_its_file(saved: Path, edit: dict[str, Any], message: str) -> None:
    content = safe_load(saved.read_text())
    for key, value in edit.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    saved.write_text(OmegaConf.to_yaml(OmegaConf.create(content)))
    with pytest.raises(ConfigError) as caught:
        load(saved)
    assert message.format(path=saved) in str(caught.value)


@pytest.mark.parametrize("text", ["", "5", "[1, 2]", "source: 5", "a: [1\n"])
def test_file_that_is_no_configuration_is_a_configuration_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load(path)


def test_saved_configuration_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "config.yaml")
