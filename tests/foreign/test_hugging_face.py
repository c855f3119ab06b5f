"""PatchTST and TimeSeriesTransformer, small, with random weights: nothing is downloaded."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoformerConfig,
    AutoformerForPrediction,
    InformerConfig,
    InformerForPrediction,
    PatchTSTConfig,
    PatchTSTForPrediction,
    TimeSeriesTransformerConfig,
    TimeSeriesTransformerForPrediction,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from forecaster.bars import planted
from forecaster.errors import ConfigError
from forecaster.foreign.subject import Foreign
from forecaster.networks.attention import Edit
from forecaster.probing import Windows, probe_model, windows

LENGTH = 18
HEADS, WIDTH = 5, 20


@pytest.fixture(scope="module")
def data() -> Windows:
    return windows(planted.load("noise", 900, seed=5), LENGTH)


@pytest.fixture(scope="module")
def batch(data) -> tuple[Tensor, Tensor]:
    x_BLF, future_BHK, _ = data.part("test")
    return torch.from_numpy(x_BLF[:7]), torch.from_numpy(future_BHK[:7])


def patchtst(attention: str = "eager", channels: int = 1, **options: object) -> PatchTSTForPrediction:
    torch.manual_seed(0)
    shape = {"context_length": LENGTH, "patch_length": 5, "patch_stride": 3, "num_hidden_layers": 2, "ffn_dim": 24}
    shape |= {"d_model": WIDTH, "num_attention_heads": HEADS, "prediction_length": 1, "num_input_channels": channels}
    return PatchTSTForPrediction(PatchTSTConfig(**shape, attn_implementation=attention, **options))


def by_patches(model: PatchTSTForPrediction, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
    count, length = model.config.num_input_channels, model.config.context_length
    return model(past_values=x_BLF[:, -length:, :count]).prediction_outputs[:, :, -1:]


def time_series(**options: object) -> TimeSeriesTransformerForPrediction:
    torch.manual_seed(0)
    shape = {"prediction_length": 1, "context_length": 14, "lags_sequence": [1, 4], "num_time_features": 7}
    shape |= {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 3, "scaling": "std"}
    shape |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": 2}
    return TimeSeriesTransformerForPrediction(TimeSeriesTransformerConfig(**shape | options))


def by_steps(model, x_BLF: Tensor, future_BHK: Tensor, **options: object) -> Tensor:
    """The mean of the first step's distribution."""
    out = model(
        past_values=x_BLF[:, :, 0],
        past_time_features=x_BLF[:, :, -7:],
        past_observed_mask=torch.ones_like(x_BLF[:, :, 0]),
        future_values=torch.zeros(len(x_BLF), 1),
        future_time_features=future_BHK,
        **options,
    )
    return out if options else model.output_distribution(out.params, out.loc, out.scale).mean[..., None]


@pytest.fixture(scope="module")
def of(data) -> Callable[..., Foreign]:
    def made(model, forecast=by_patches, **options: object) -> Foreign:
        model.eval()
        return Foreign(model, data.panel, data.split, data.length, forecast, **options)

    return made


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("channel", [0, 2])
def test_attention_to_patches_is_output_attentions_on_their_bars(of, batch, attention, channel):
    model = patchtst(attention, channels=3)
    subject = of(model, channel=channel)
    with torch.no_grad():
        plain = by_patches(model, *batch)
        out = subject.forecast(*batch, capture={0: (LENGTH - 1,), 1: (LENGTH - 1,)})
        eager = patchtst("eager", channels=3).eval()
        told = eager(past_values=batch[0][:, :, :3], output_attentions=True).attentions
    assert torch.equal(out.mean_BHC, plain)
    for layer in range(2):
        by_patch = told[layer].reshape(7, 3, HEADS, 5, 5)[:, channel, :, -1]
        by_bar = torch.zeros(7, HEADS, LENGTH)
        for patch in range(5):
            first = 1 + 3 * patch  # the first bar fills no patch, the last one ends at the last bar
            by_bar[:, :, first : first + 5] += by_patch[:, :, patch, None] / 5
        found = out.captured[layer]
        torch.testing.assert_close(found.attn_BNTS[:, :, 0], by_bar, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.norm_BNTS.sum(-1), torch.ones(7, HEADS, 1))
        assert found.v_BNSd.shape == (7, HEADS, LENGTH, WIDTH // HEADS)
        assert subject.computed(layer) == (5, 8, 11, 14, 17)


def test_encoder_and_cross_attention_are_output_attentions_on_the_bars_told_at_each_time(of, batch):
    model = time_series()
    subject = of(model, by_steps)
    assert [subject.attention(layer).heads for layer in range(subject.layers)] == [5, 5, 2, 2, 2]
    last = dict.fromkeys(range(5), (LENGTH - 1,))
    with torch.no_grad():
        plain = by_steps(model, *batch)
        out = subject.forecast(*batch, capture=last)
        told = by_steps(model, *batch, output_attentions=True)
        model.config._attn_implementation = "sdpa"  # what transformers doesn't offer for it, but which works
        fused = of(model, by_steps).forecast(*batch, capture=last)
    assert torch.equal(out.mean_BHC, plain)
    torch.testing.assert_close(fused.mean_BHC, plain, rtol=1e-6, atol=1e-6)
    for layer, weights in enumerate((*told.encoder_attentions, *told.cross_attentions)):
        by_bar = torch.zeros(7, weights.shape[1], LENGTH)
        for time in range(14):
            for lag in (1, 4):
                by_bar[:, :, 4 + time - lag] += weights[:, :, -1, time] / 2
        for found in (out, fused):
            torch.testing.assert_close(found.captured[layer].attn_BNTS[:, :, 0], by_bar, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_edits_act_in_the_models_own_pass(of, batch, attention):
    model = patchtst(attention, channels=2)
    subject = of(model, channel=1)

    def zeroed(x: Tensor) -> Tensor:
        changed = x.clone()
        changed[:, 3] = 0.0
        return changed

    def read_only(x: Tensor) -> Tensor:
        return x.clone()

    own = slice(12, 16)  # of head 3
    without = copy.deepcopy(model)
    with torch.no_grad():
        plain = by_patches(model, *batch)
        same = subject.forecast(*batch, {0: Edit(v=read_only, z=read_only), 1: Edit(v=read_only, z=read_only)})
        assert torch.equal(same.mean_BHC, plain)
        by_z = subject.forecast(*batch, {1: Edit(z=zeroed)}).mean_BHC
        by_v = subject.forecast(*batch, {1: Edit(v=zeroed)}).mean_BHC
        without.model.encoder.layers[1].self_attn.out_proj.weight[:, own] = 0.0
        by_hand = by_patches(without, *batch)
    assert not torch.equal(by_hand, plain)
    torch.testing.assert_close(by_z, by_hand, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(by_v, by_hand, rtol=1e-5, atol=1e-7)


def test_no_other_channel_is_edited(of, batch):
    model = patchtst(channels=2)
    own = of(model, lambda m, x, future: m(past_values=x[:, :, :2]).prediction_outputs[:, :, :1], channel=0)
    other = of(model, channel=0)  # forecasts channel 1
    edits = {0: Edit(z=torch.zeros_like), 1: Edit(v=torch.zeros_like)}
    with torch.no_grad():
        assert torch.equal(other.forecast(*batch, edits).mean_BHC, other.forecast(*batch).mean_BHC)
        assert not torch.equal(own.forecast(*batch, edits).mean_BHC, own.forecast(*batch).mean_BHC)


def test_both_are_probed_end_to_end(data):
    shallow = patchtst("sdpa", channels=3)
    shallow.train()
    before, configured = copy.deepcopy(shallow.state_dict()), shallow.config.to_dict()
    found = probe_model(shallow, data, by_patches, channel=2)
    assert all(torch.equal(value, before[name]) for name, value in shallow.state_dict().items())
    assert (shallow.config.to_dict(), shallow.config._attn_implementation) == (configured, "sdpa")
    assert set(zip(found.heads["layer"], found.heads["head"], strict=True)) == set(np.ndindex(2, HEADS))
    assert shallow.training
    assert len(found.gates) == 1
    seen = found.lag_profiles.query("weights == 'raw'").groupby(["layer", "head"])["mean"].sum()
    np.testing.assert_allclose(seen, 1.0, rtol=1e-5)
    ablated = found.knockouts.query("kind == 'mean'")
    assert len(ablated) == 2 * HEADS
    assert (ablated["rise"] != 0).all()
    found = probe_model(time_series(), data, by_steps)
    assert len(found.knockouts.query("kind == 'mean'")) == 2 * HEADS + 3 * 2
    assert (found.heads["label"] != "functional").all()  # untrained, on noise


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_compiled_and_in_half_precision(of, batch, attention):
    def in_half(m, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return by_patches(m, x_BLF, future_BHK)

    model = patchtst(attention).eval()
    with torch.no_grad():
        plain = of(model).forecast(*batch, capture={1: (LENGTH - 1,)})
        compiled = of(torch.compile(model, backend="eager"), lambda m, x, f: m(past_values=x[:, :, :1])[0])
        same = compiled.forecast(*batch, capture={1: (LENGTH - 1,)})
        assert torch.equal(same.mean_BHC, plain.mean_BHC)
        assert torch.equal(same.captured[1].attn_BNTS, plain.captured[1].attn_BNTS)
        mixed = of(model, in_half).forecast(*batch, capture={1: (LENGTH - 1,)}).captured[1]
        torch.testing.assert_close(mixed.attn_BNTS.sum(-1), torch.ones(7, HEADS, 1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(mixed.norm_BNTS, plain.captured[1].norm_BNTS, rtol=0, atol=0.02)
        half = of(model.bfloat16(), lambda m, x, f: by_patches(m, x.bfloat16(), f))
        near = half.forecast(*batch, capture={1: (LENGTH - 1,)})
    torch.testing.assert_close(near.mean_BHC, plain.mean_BHC, rtol=0.05, atol=0.05)
    torch.testing.assert_close(near.captured[1].attn_BNTS, plain.captured[1].attn_BNTS, rtol=0, atol=0.02)


def test_what_stands_in_the_mapping_comes_back_also_after_an_error(of, batch):
    def theirs(*arguments: object, **options: object) -> object:
        raise AssertionError("not to be called")

    def names() -> dict[str, object]:
        return {name: ALL_ATTENTION_FUNCTIONS.get(name) for name in ("eager", "sdpa", *ALL_ATTENTION_FUNCTIONS)}

    before = names()
    subject = of(patchtst("sdpa"))
    assert names() == before

    def fail(x: Tensor) -> Tensor:
        raise ArithmeticError("half-way")

    with pytest.raises(ArithmeticError, match="half-way"):
        subject.forecast(*batch, {1: Edit(z=fail)})
    assert names() == before
    ALL_ATTENTION_FUNCTIONS["eager"] = theirs
    try:
        subject.forecast(*batch)
        assert ALL_ATTENTION_FUNCTIONS["eager"] is theirs
    finally:
        del ALL_ATTENTION_FUNCTIONS["eager"]
    assert names() == before


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (lambda: patchtst(use_cls_token=True), {}, "use_cls_token has a token that is no bar"),
        (lambda: patchtst(channels=2, channel_attention=True), {"channel": 0}, "channel_attention has heads that look"),
        (lambda: patchtst(channels=3), {}, "channel=None: the model attends in 3 sequences for each window"),
        (lambda: patchtst(channels=3), {"channel": 3}, "name the one that is forecast, 0 to 2"),
    ],
)
def test_what_can_not_be_probed_is_refused_in_one_line(of, model, options, message):
    with pytest.raises(ConfigError, match=message) as refused:
        of(model(), **options)
    assert "\n" not in str(refused.value)


def test_windows_shorter_than_the_context_are_refused(of):
    with pytest.raises(ConfigError, match="the model reads 20 bars, the windows have 18: make windows of 20 bars"):
        of(
            time_series(context_length=16),
            lambda m, x, future: by_steps(m, torch.cat((x[:, :2], x), dim=1), future),
        )


def test_a_sampled_forecast_is_refused(of):
    def sampled(model, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
        return model.generate(
            past_values=x_BLF[:, :, 0],
            past_time_features=x_BLF[:, :, -7:],
            past_observed_mask=torch.ones_like(x_BLF[:, :, 0]),
            future_time_features=future_BHK,
        ).sequences.mean(1)[..., None]

    with pytest.raises(ConfigError, match="it draws random numbers in evaluation mode"):
        of(time_series(num_parallel_samples=3), sampled)


def test_attention_of_their_other_models_is_refused(of):
    shape = {"prediction_length": 1, "context_length": 14, "lags_sequence": [1, 4], "num_time_features": 7}
    shape |= {"d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1}
    informer = InformerForPrediction(InformerConfig(**shape, attention_type="full"))
    with pytest.raises(ConfigError, match="InformerAttention is no attention that is known"):
        of(informer, by_steps)
    autoformer = AutoformerForPrediction(AutoformerConfig(**shape, label_length=3, moving_average=3))
    with pytest.raises(ConfigError, match="gives no attention that is known"):
        of(
            autoformer,
            lambda model, x, future: model(
                past_values=x[:, :, 0],
                past_time_features=x[:, :, -7:],
                past_observed_mask=torch.ones_like(x[:, :, 0]),
                future_time_features=future,
                future_values=torch.zeros(len(x), 1),
            ).params[0][:, -1:, None],
        )
