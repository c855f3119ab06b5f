"""What is found out about a model by trying it, and that edits by tool are edits by hand."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.foreign.tokens import patches
from forecaster.networks.attention import Edit
from forecaster.probes.capture import forecast as forecast_from
from forecaster.probes.capture import looks
from forecaster.probes.knockout import ablation, point_forecasts, training_means
from forecaster.probes.subject import Headed, Subject
from small_models import HEADS, HORIZON, LENGTH, TARGETS, WIDTH, encoder, forecast

N, d = HEADS, WIDTH // HEADS


class Causal(nn.Module):
    """One encoder layer used twice, causal the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, N, 24, batch_first=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x_BLD.shape[1])
        return self.layer(self.layer(x_BLD), src_mask=mask, is_causal=True)


class Last(nn.Module):
    """Attention of the last bar alone, without a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, N, batch_first=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.attention(x_BLD[:, -1:], x_BLD, x_BLD, need_weights=False)[0]


def test_layers_are_calls_and_causality_is_read_off_them(make, subject):
    found = subject(make(Causal))
    assert isinstance(found, Subject)
    assert isinstance(found.headed, Headed)
    assert [found.attention(layer).causal for layer in range(found.layers)] == [False, True]
    assert found.computed(0) == tuple(range(LENGTH))
    assert (found.attention(0).heads, found.attention(0).head_width, found.attention(0).width) == (N, d, WIDTH)
    last = subject(make(Last))
    assert (last.layers, last.computed(0), last.attention(0).causal) == (1, (LENGTH - 1,), False)


def test_a_module_shared_between_layers_is_edited_in_one_of_them(make, subject, batch):
    model = make(Causal).eval()
    found = subject(model)

    def zeroed(z: Tensor) -> Tensor:
        return z * (torch.arange(N) != 2)[:, None, None]

    with torch.no_grad():
        first, second, both = (
            found.forecast(*batch, edits).mean_BHC
            for edits in ({0: Edit(z=zeroed)}, {1: Edit(z=zeroed)}, {0: Edit(z=zeroed), 1: Edit(z=zeroed)})
        )
        model.encoder.layer.self_attn.out_proj.weight[:, 2 * d : 3 * d] = 0.0
        torch.testing.assert_close(both, forecast(model, *batch), rtol=1e-5, atol=1e-6)
    assert len({float(x.sum()) for x in (first, second, both)}) == 3


def test_calls_asked_for_are_the_layers(make, subject, batch):
    model = make()
    both, second = subject(model), subject(model, calls=[1])
    with torch.no_grad():
        whole = both.forecast(*batch, capture={1: (4, 11)}).captured[1]
        alone = second.forecast(*batch, capture={0: (4, 11)}).captured[0]
    assert second.layers == 1
    assert torch.equal(whole.attn_BNTS, alone.attn_BNTS)
    with pytest.raises(ConfigError, match=r"calls=\[2\]: the model makes 2, numbered from 0"):
        subject(model, calls=[2])


def test_ablation_by_tool_is_ablation_by_hand(make, subject, data):
    model, origins = make(Last).eval(), data.split.test[:7]
    found = subject(model)
    means = training_means(found, data.panel, data.split.train, LENGTH)
    by_tool = point_forecasts(found, data.panel, origins, LENGTH, ablation([(0, 3)], means.z_NTd))

    def z(rows: np.ndarray) -> Tensor:
        x = torch.from_numpy(data.panel.window(rows, LENGTH))
        x = model.embed(x) + model.position
        w, b = model.encoder.attention.in_proj_weight, model.encoder.attention.in_proj_bias
        q, k, v = (
            (y @ w[i * WIDTH : (i + 1) * WIDTH].T + b[i * WIDTH : (i + 1) * WIDTH]).reshape(len(x), -1, N, d).mT
            for i, y in enumerate((x[:, -1:], x, x))
        )
        scores = torch.einsum("btdn,bsdn->bnts", q, k) / math.sqrt(d)
        return torch.einsum("bnts,bsdn->bnd", scores.softmax(-1), v)

    with torch.no_grad():
        changed = z(origins)
        changed[:, 3] = z(data.split.train)[:, 3].double().mean(0).float()
        out = model.encoder.attention.out_proj(changed.flatten(1))
        by_hand = model.readout(out).reshape(-1, HORIZON, len(TARGETS)).numpy()
    np.testing.assert_allclose(by_tool, by_hand, rtol=1e-5, atol=1e-6)
    assert not np.allclose(by_tool, point_forecasts(found, data.panel, origins, LENGTH), rtol=1e-3)


def test_gradients_flow_through_edits(make, subject, batch):
    model = make().double().eval()
    found = subject(model, lambda m, x, future: m(x.double()))
    gate = torch.ones(N, 1, 1, dtype=torch.float64, requires_grad=True)

    def total(gate_N11: Tensor) -> Tensor:
        return found.forecast(*batch, {0: Edit(z=lambda z: gate_N11 * z)}).mean_BHC.double().square().sum()

    (gradient,) = torch.autograd.grad(total(gate), gate)
    for head in range(N):
        step = torch.zeros(N, 1, 1, dtype=torch.float64)
        step[head] = 1e-2
        with torch.no_grad():
            slope = (total(1 + step) - total(1 - step)) / 2e-2
        torch.testing.assert_close(gradient[head, 0, 0], slope, rtol=1e-3, atol=1e-4)


def test_edits_that_change_nothing_change_no_bit(make, subject, batch):
    found = subject(make())
    same = Edit(v=lambda v: v.clone(), z=lambda z: z.clone())
    with torch.no_grad():
        plain = found.forecast(*batch)
        edited = found.forecast(*batch, {0: same, 1: same}, {0: (0, 11), 1: (11,)})
    assert torch.equal(plain.mean_BHC, edited.mean_BHC)


def test_patches_of_ones_own_are_taken_to_their_bars(make, subject, data):
    class Patched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.join, self.inner = nn.Linear(4 * WIDTH, WIDTH), encoder(1)

        def forward(self, x_BLD: Tensor) -> Tensor:
            return self.inner(self.join(x_BLD.unfold(1, 4, 4).flatten(2)))

    model = make(Patched)
    with pytest.raises(ConfigError, match="3 keys for 12 tokens of a window of 12 bars"):
        subject(model)
    found = subject(model, bars_SL=patches(LENGTH, 4, 4))
    seen = list(looks(found, data.panel, data.split.test[:5], LENGTH))
    assert [look.stratum for look in seen] == ["last"]
    by_patch = seen[0].raw_nNL.reshape(5, N, 3, 4)
    np.testing.assert_array_equal(by_patch, by_patch[..., :1].repeat(4, axis=-1))
    np.testing.assert_allclose(seen[0].raw_nNL.sum(-1), 1.0, rtol=1e-5)


def test_a_model_that_reads_the_last_bars_alone_says_so(make, subject, batch):
    class Recent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder(1)

        def forward(self, x_BLD: Tensor) -> Tensor:
            return self.inner(x_BLD[:, -8:])

    model = make(Recent).eval()
    found = subject(model, bars_SL=np.eye(LENGTH, dtype=bool)[-8:])
    assert found.computed(0) == tuple(range(4, LENGTH))
    with torch.no_grad():
        weights = found.forecast(*batch, capture={0: (11,)}).captured[0].attn_BNTS
        x = (model.embed(batch[0]) + model.position)[:, -8:]
        told = model.encoder.inner.layers[0].self_attn(x, x, x, average_attn_weights=False)[1]
    assert not weights[..., :4].any()
    torch.testing.assert_close(weights[:, :, 0, 4:], told[:, :, -1], rtol=0, atol=1e-6)


def test_of_an_encoder_decoder_the_calls_over_the_bars_are_named(subject, data):
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.steps = nn.Linear(14, WIDTH), nn.Parameter(torch.randn(HORIZON, WIDTH))
            self.inner = nn.Transformer(WIDTH, N, 1, 1, 24, dropout=0.0, batch_first=True)
            self.readout = nn.Linear(WIDTH, len(TARGETS))

        def forward(self, x_BLF: Tensor) -> Tensor:
            return self.readout(self.inner(self.embed(x_BLF), self.steps.expand(len(x_BLF), HORIZON, WIDTH)))

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nn.Transformer asks for nested tensors, which an odd number of heads forbids
        model = Both()
    with pytest.raises(ConfigError, match=r"call 1 of 3 of attention has 3 keys .* \(calls=\[0, 2\]\)"):
        subject(model)
    found = subject(model, calls=[0, 2])
    assert [found.computed(layer) for layer in range(2)] == [tuple(range(LENGTH)), (LENGTH - 1,)]
    seen = {look.layer: look for look in looks(found, data.panel, data.split.test[:5], LENGTH)}
    told: list[Tensor] = []
    cross = model.inner.decoder.layers[0].multihead_attn
    with torch.no_grad():
        x = torch.from_numpy(data.panel.window(data.split.test[:5], LENGTH))
        memory = model.inner.encoder(model.embed(x))
        cross.register_forward_pre_hook(lambda module, inputs: told.append(inputs[0]))
        model(x)
        weights = cross(told[0], memory, memory, average_attn_weights=False)[1]
    np.testing.assert_allclose(seen[1].raw_nNL, weights[:, :, 0].numpy()[..., ::-1], rtol=0, atol=1e-6)


def test_no_batch_size_changes_a_figure(make, subject, data):
    found, origins = subject(make()), data.split.test[:9]
    whole = forecast_from(found, data.panel, origins, LENGTH, capture={0: (11,)})
    parts = [forecast_from(found, data.panel, origins[k : k + 4], LENGTH, capture={0: (11,)}) for k in (0, 4, 8)]
    joined = torch.cat([part.captured[0].attn_BNTS for part in parts])
    torch.testing.assert_close(joined, whole.captured[0].attn_BNTS, rtol=1e-6, atol=1e-7)
