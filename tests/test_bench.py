"""What bench/train.py counts and writes, and that bench/panel.py runs; nothing here measures."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parent.parent


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    before = set(sys.modules)
    yield importlib.import_module
    # The scripts are no package: their names (train, panel) are theirs in here alone.
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == ROOT / "bench":
            del sys.modules[name]


def test_when_the_plain_network_trains_then_its_products_are_those_counted(bench):
    plain = bench("with_plain")
    network = plain.Plain(5)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        network(torch.randn(3, plain.LENGTH, 5, requires_grad=True)).sum().backward()
    readout = 3 * 2 * plain.WIDTH * len(plain.QUANTILES)
    assert counter.get_total_flops() == 3 * (plain.flops(5) + readout)


def test_when_a_rate_is_taken_then_warm_up_and_validation_are_not_on_the_clock(bench, monkeypatch):
    measuring = bench("measuring")
    now = [0.0]
    monkeypatch.setattr(measuring, "_now", lambda: measuring.np.array([now[0], 2 * now[0]]))
    watch = measuring.Watch(measuring.Order("rate", "", "", seconds=10.0))
    watch.go()
    for _ in range(5):
        now[0] += 4.0
        assert not watch.step(32, 64)
        watch.pause()
        now[0] += 100.0
        watch.validated(0.5)
        watch.go()
    now[0] += 3.0
    assert watch.step(32, 64)
    # Steps 4 to 6 count: 96 windows in 4 + 4 + 3 seconds.
    result = watch.result()
    assert result["windows_per_s"] == pytest.approx(96 / 11)
    assert result["origins_per_s"] == pytest.approx(192 / 11)
    assert result["core_ms"] == pytest.approx(22_000 / 96)


def test_when_a_loss_is_raced_for_then_the_first_time_under_the_mark_counts_and_the_limit_ends_it(bench, monkeypatch):
    measuring = bench("measuring")
    now = [0.0]
    monkeypatch.setattr(measuring, "_now", lambda: measuring.np.array([now[0], now[0]]))
    watch = measuring.Watch(measuring.Order("quality", "", "", mark=0.2, limit=9.0))
    watch.go()
    found = []
    for loss in (0.4, 0.2, 0.3, 0.1):
        now[0] += 3.0
        found.append((watch.step(1, 1), watch.validated(loss)))
    assert found == [(False, False), (False, True), (False, False), (True, True)]
    assert watch.result()["seconds"] == 6.0
    assert watch.result()["best"] == 0.1


def test_when_rates_are_told_then_the_ratio_is_to_the_best_rival_and_not_to_the_tft(bench):
    train = bench("train")

    def row(rate, origins=1):
        return {
            "windows_per_s": rate,
            "origins_per_s": rate * origins,
            "core_ms": 2.0,
            "memory_mib": 10.0,
            "imports": 1.0,
            "speed": 1e9,
            "flops": 1e6,
        }

    found = {
        "forecaster, one process": [row(300.0, 32), row(500.0, 32), row(410.0, 32)],
        train.PLAIN.label: [row(90.0), row(100.0), row(80.0)],
        train.DARTS.label: [row(120.0), row(70.0), row(110.0)],
        train.TFT.label: [row(700.0)] * 3,
    }
    cells = [line.split(" | ") for line in train.rate_table(found)]
    assert cells[2][1:5] == ["410 (300 to 500)", "13,120", "119.27", "41%"]
    assert [line[3] for line in cells[3:]] == ["0.82", "1.00", "6.36"]


def test_when_the_mark_is_not_reached_then_the_table_says_that_the_limit_counts(bench):
    train = bench("train")
    found = {"a": {"seconds": None, "epochs": 3, "best": 0.12345}, "b": {"seconds": 4.26, "epochs": 1, "best": 0.1}}
    assert list(train.race_table(found, 90.0))[2:] == [
        "| a | not reached: counts as its limit, 90 | 3 | 0.1235 |",
        "| b | 4.3 | 1 | 0.1000 |",
    ]


def test_when_tables_are_written_then_the_rest_of_the_page_stays(bench, monkeypatch, tmp_path):
    train = bench("train")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{train.BEGIN}\nold\n{train.END}\nafter\n")
    monkeypatch.setattr(train, "PAGE", page)
    train.write("new")
    train.write("newer")
    assert page.read_text() == f"before\n{train.BEGIN}\nnewer\n{train.END}\nafter\n"


def test_when_the_page_is_committed_then_it_has_a_place_for_the_tables(bench):
    train = bench("train")
    text = train.PAGE.read_text()
    assert text.count(train.BEGIN) == text.count(train.END) == 1
    assert text.index(train.BEGIN) < text.index(train.END)


def test_when_the_projects_torch_changes_then_the_peers_are_measured_with_it_too():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [line for line in project if line.startswith("torch==")]
    assert set(wanted) <= set((ROOT / "bench" / "peers.txt").read_text().splitlines())
    assert wanted


def test_when_a_table_is_written_and_read_then_its_parts_are_those_of_each_symbol(bench, tmp_path):
    measuring = bench("measuring")
    y = torch.arange(7.0).numpy()
    counts, known = measuring.np.array([3, 4]), measuring.np.array([2, 3])
    measuring.Table(y, measuring.np.stack((y, -y), axis=1), ["a", "b"], counts, known).write(str(tmp_path / "t.npz"))
    table = measuring.Table.read(str(tmp_path / "t.npz"))
    assert list(table.parts()) == [(slice(0, 3), 2), (slice(3, 7), 3)]
    frame = table.frame()
    assert frame["symbol"].tolist() == ["S00000"] * 3 + ["S00001"] * 4
    assert frame["bar"].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert frame["b"].tolist() == (-y).tolist()
    assert table.first(1).frame().equals(frame[:3])


@pytest.mark.parametrize("in_memory_gb", [float("inf"), 0.0])
def test_when_a_panel_is_measured_then_every_figure_is_one(bench, monkeypatch, in_memory_gb):
    panel = bench("panel")
    monkeypatch.setattr(panel, "BARS", 300)
    found = panel.measured(3, in_memory_gb)
    assert tuple(found) == panel.FIELDS
    assert found["symbols"] == 3
    assert all(measured >= 0 for measured in found.values())
    assert found["panel GB"] > 0


def test_when_only_the_noise_null_fails_a_head_then_results_count_it_before_that_null_and_not_after(bench):
    page = bench("results_page")
    noise = "not above heads trained on noise (kappa 0.415)"
    reasons = [
        f"raw: {noise}; norm: {noise}; partial mass 0.010: mostly bars of other probes",
        f"raw: {noise}; norm: kappa 0.046 under 0.05, {noise}",
        "raw: q 0.200 over 0.05; norm: q 0.300 over 0.05",
        "pattern, functional: return: mean-ablation +0.02",
    ]
    heads = page.pd.DataFrame({"layer": 0, "head": range(4), "probe": "large_move", "reason": reasons})
    heads = heads.assign(stratum="last", weights="raw", kappa="0.14", label=["none", "none", "none", "functional"])
    nulls = page.pd.DataFrame({"null": "noise", "probe": "large_move", "weights": "raw", "kappa": ["0.40", "0.42"]})
    run = {"heads": heads, "head_nulls": nulls, "summary": {"seed": 0}}
    assert page._counts(run, "large_move") == (2, 1, 1)
    row, _, words = page.labels([run]).splitlines()[-3:]
    assert words.startswith(
        "Of 4 heads in 1 networks, 2 patterns pass every test but the noise null, 1 of them that too "
        "(some pattern in 1 of 1 runs)"
    )
    assert row.startswith("| large_move | 2 of 4 (50.0%, 6.8% to 93.2%) | 0.140 to 0.140 | 0.419 to 0.419 | 1 of 4 ")
    assert row.endswith("| 1 in 1 of 1 seeds |")


@pytest.mark.parametrize("script", ["validate", "results"])
def test_when_nothing_is_kept_then_no_page_is_written_and_a_line_says_what_to_do(
    bench, monkeypatch, tmp_path, capsys, script
):
    module = bench(script)
    monkeypatch.setattr(bench("validate"), "ROOT", tmp_path)
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    assert module.main(["report"]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert str(tmp_path / "kept") in said.err
    assert len(said.err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.md"))


def test_when_less_than_the_full_set_is_kept_then_the_page_in_docs_stays(bench, monkeypatch, tmp_path, capsys):
    validate = bench("validate")
    monkeypatch.setattr(validate, "ROOT", tmp_path)
    monkeypatch.setattr(validate, "KEPT", tmp_path / "kept")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "validation.md").write_text("whole")
    validate.keep("short", 0, {"positional": []})
    assert validate.main(["report"]) == 0
    assert (tmp_path / "docs" / "validation.md").read_text() == "whole"
    assert "(0 seeds)" in (tmp_path / "kept" / "validation.md").read_text()
    assert "docs/validation.md stays" in capsys.readouterr().out
    monkeypatch.setattr(validate, "jobs", lambda size, only: iter(()))
    assert validate.main(["report"]) == 0
    assert "(0 seeds)" in (tmp_path / "docs" / "validation.md").read_text()


def test_when_every_gate_is_closed_then_false_patterns_are_counted_and_no_head_could_be_functional(bench, tmp_path):
    page = bench("validation_page")
    run = tmp_path / "planted_noise" / "0"
    run.mkdir(parents=True)
    gates = ["return: no skill (p = 0.4, not below 0.01): no head is called functional for it"]
    (run / "summary.json").write_text(page.json.dumps({"status": "complete", "gates": gates}))
    heads = page.pd.DataFrame({"layer": 0, "head": [0, 1, 1], "probe": ["large_move", "large_move", "weekly"]})
    heads.assign(label=["none", "pattern", "pattern"]).to_csv(run / "heads.csv", index=False)
    score = {"symbol": ["all"], "metric": ["r2"], "model": ["attention"], "value": [-0.01]}
    page.pd.DataFrame(score).to_csv(run / "scores.csv", index=False)
    row = page.planted(tmp_path).splitlines()[2]
    assert "1 of 2 (50.0%, 1.3% to 98.7%): large_move 1, weekly 1" in row
    assert "none could be; gate open in 0 of 1 runs (0.0%, 0.0% to 97.5%)" in row


def test_when_validation_would_remove_more_than_test_allows_then_results_tell_what_its_choice_costs_on_test(bench):
    page = bench("results_page")
    lost = {"validation": [0.0, 0.002, 0.008, 0.02, 0.0], "test": [0.0, 0.004, 0.03, 0.05, 0.2]}
    rows = [
        {"order": "importance", "seed": None, "removed": gone, "part": part, "target": "volume", "skill_share": share}
        for part, shares in lost.items()
        for gone, share in enumerate(shares)
    ]
    assert page._chosen(page.pd.DataFrame(rows), 4) == "50%: volume 3.0%"
